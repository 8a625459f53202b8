// What other pages hand over to be drafted, in the address of this one: rule=TEXT&hook=input,
// and at=FILE:LINE, the line that decides now.

import { draft } from '../../lib/draft.svelte';
import { addRule, changedLine } from '../../lib/policyText';

/** Takes it into the draft; says in which file, and what happened to it. */
export function take(query: URLSearchParams): { file: string; line: number; words: string } {
  const rule = query.get('rule');
  if (!rule) return { file: '', line: 0, words: '' };
  const hook =
    query.get('hook') === 'forward' ? 'forward' : query.get('hook') === 'output' ? 'output' : 'input';
  const [, named = '', line = '0'] = /^(.*):(\d+)$/.exec(query.get('at') ?? '') ?? [];
  const part =
    draft.parts.find((p) => p.name === named) ??
    draft.parts.find((p) => new RegExp(`^${hook}:`, 'm').test(p.text)) ??
    draft.parts[0];
  if (!part) return { file: '', line: 0, words: '' };
  const text = addRule(draft.text(part.name), hook, rule, Number(line));
  if (text === undefined)
    return { file: part.name, line: 0, words: `Add this to the rules of ${hook} yourself: ${rule}` };
  const changed = changedLine(draft.text(part.name), text);
  draft.set(part.name, text);
  return {
    file: part.name,
    line: changed,
    words: `${rule}: a new rule of ${hook} in ${part.name}. What it means is below.`,
  };
}
