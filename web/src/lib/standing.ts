import type { Agent } from '../api/client';

/** What a host is, in a word. Good is only what is proved and as it was meant. */
export interface Standing {
  kind: 'good' | 'warn' | 'bad' | 'unknown';
  word: string;
  why: string;
}

/** What a status says. */
export function standing(s: Agent['Status']): Standing {
  const findings = s.agent?.findings ?? [];
  switch (s.condition) {
    case 'nothing':
      return {
        kind: 'warn',
        word: 'nothing runs',
        why: 'No Sluice policy is loaded: sluice init writes a first one, and sluice apply loads it.',
      };
    case 'changing':
      return {
        kind: 'unknown',
        word: 'changing',
        why: s.busy ? `${s.busy} is changing it.` : 'It is being changed.',
      };
    case 'gone':
      return {
        kind: 'bad',
        word: 'gone',
        why: 'The policy was loaded, but its rules are no longer there.',
      };
    case 'unmarked':
    case 'unknown':
      return { kind: 'bad', word: 'unknown', why: 'Sluice does not recognise the rules in the kernel.' };
  }
  const drift =
    findings.length + s.drift.length + (s['sysctl-drift']?.length ?? 0) + (s['exception-drift']?.length ?? 0);
  if (drift > 0)
    return { kind: 'bad', word: 'drift', why: 'The kernel holds something other than what was loaded.' };
  if (!s.proved)
    return {
      kind: 'unknown',
      word: 'not proved',
      why: 'It runs, but has not been proved since it was loaded.',
    };
  return { kind: 'good', word: 'proved', why: 'The kernel does what the policy says, for every packet.' };
}

/** The same of a status that is old, since nobody answers any more: what was is not proved now. */
export function before(is: Standing): Standing {
  return { kind: 'unknown', word: `was ${is.word}`, why: 'The server no longer answers. Before: ' + is.why };
}
