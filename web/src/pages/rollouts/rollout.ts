// A roll-out as the controller has it (internal/fleet/rollout); the OpenAPI document names it an object.

import { plural } from '../../lib/numbers';
import type { Standing } from '../../lib/standing';

export type Phase =
  | 'draft'
  | 'checked'
  | 'signed'
  | 'prefetched'
  | 'pushed'
  | 'settled'
  | 'done'
  | 'paused'
  | 'halted'
  | 'reverting'
  | 'reverted'
  | 'superseded';

export interface Stage {
  'per-class'?: number;
  hosts?: number;
  percent?: number;
}

export interface RolloutHost {
  class?: string;
  stage: number;
  state: string;
  before?: number;
  target: number;
  told: string;
  since: string;
  failed?: boolean;
  excused?: boolean;
  back?: boolean;
  reason?: string;
  evidence?: string[];
}

export interface Rollout {
  id: number;
  bundle: number;
  told?: number; // hosts, in a list, where the state has none of them
  failed?: number;
  plan: {
    stages: Stage[];
    settle: string;
    answer: string;
    confirm: string;
    halt: { hosts?: number; percent?: number };
    'on-halt': 'revert' | 'hold';
    'not-before'?: string;
  };
  state: {
    phase: Phase;
    reason: string;
    since: string;
    until?: string;
    stage: number;
    hold?: boolean;
    by?: number;
    hosts?: Record<string, RolloutHost>;
    'left-out'?: { host: string; reason: string }[];
    history?: { at: string; phase: Phase; stage: number; reason: string; who?: string }[];
  };
}

/** Where a roll-out is, in a word. Good is only one that is through. */
export function standing(r: Rollout): Pick<Standing, 'kind'> & { text: string } {
  const phase = r.state.phase;
  switch (phase) {
    case 'done':
      return { kind: 'good', text: 'done' };
    case 'halted':
    case 'reverting':
    case 'reverted':
      return { kind: 'bad', text: phase };
    case 'superseded':
      return { kind: 'unknown', text: phase };
    default:
      return { kind: 'warn', text: phase };
  }
}

/** It goes on, or waits for somebody. */
export function open(r: Rollout): boolean {
  return !['done', 'reverted', 'superseded'].includes(r.state.phase);
}

/** "1 per class", "5 %", "20 hosts". */
export function stageText(s: Stage): string {
  if (s['per-class']) return `${s['per-class']} per class`;
  return s.percent ? `${s.percent} %` : plural(s.hosts ?? 0, 'host');
}

/** How a roll-out may be steered now, by the phase that it is in. */
export function steering(r: Rollout): ('pause' | 'resume' | 'halt' | 'hold' | 'revert')[] {
  switch (r.state.phase) {
    case 'paused':
      return ['resume', 'halt', 'hold', 'revert'];
    case 'halted':
      return r.state.hold ? ['resume', 'revert'] : ['resume', 'hold', 'revert'];
    case 'done':
      return ['revert'];
    case 'reverting':
    case 'reverted':
    case 'superseded':
      return [];
    default:
      return ['pause', 'halt', 'hold', 'revert'];
  }
}
