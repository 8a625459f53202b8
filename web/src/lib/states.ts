// The states of a fleet's hosts, the worst first.

import type { Fleet } from '../api/client';
import type { Standing } from './standing';

export type HostState = Fleet['HostState'];

interface Is {
  kind: Standing['kind'];
  word: string;
  why: string;
}

export const states: Record<HostState, Is> = {
  drift: { kind: 'bad', word: 'drift', why: 'Somebody changed the rules in the kernel.' },
  refused: { kind: 'bad', word: 'refused', why: 'It refused the bundle, or rolled it back.' },
  claimed: { kind: 'bad', word: 'claimed', why: 'Two hosts claim its name.' },
  restored: {
    kind: 'warn',
    word: 'restored',
    why: 'The controller’s database is an older copy; the host accepts nothing until a new incarnation is signed.',
  },
  stale: { kind: 'warn', word: 'stale', why: 'It is on its way to the newest bundle.' },
  none: { kind: 'warn', word: 'no bundle', why: 'No roll-out has reached it.' },
  offline: { kind: 'unknown', word: 'offline', why: 'It is not connected. It keeps running what it has.' },
  proved: { kind: 'good', word: 'proved', why: 'Its kernel does what the bundle says, for every packet.' },
};

export const stateNames = Object.keys(states) as HostState[];

/** What a state is, where it is known that it is so now; else it is what was. */
export function shown(state: HostState, current: boolean): { kind: Standing['kind']; text: string } {
  const is = states[state];
  return current ? { kind: is.kind, text: is.word } : { kind: 'unknown', text: `was ${is.word}` };
}
