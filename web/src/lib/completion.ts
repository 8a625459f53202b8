// What may be written at a place of a policy: keys and words by the schema of the language,
// and the names that the policy defines.

import type { Completion, CompletionContext, CompletionResult } from '@codemirror/autocomplete';
import schema from '../../../docs/reference/policy.schema.json';
import { codes, countryName } from './countries';
import type { Names } from './policyText';

interface Schema {
  $ref?: string;
  if?: Schema; // tells kinds of files by keys at their top
  then?: Schema;
  else?: Schema;
  required?: string[];
  examples?: string[];
  description?: string;
  type?: string;
  enum?: string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  anyOf?: Schema[];
}
const definitions = schema.$defs as unknown as Record<string, Schema>;

/** What a file is by the keys at its top: the fleet's own, one of a host in it, or a policy. */
function kind(text: string): Schema {
  let s = schema as unknown as Schema;
  while (s.if) s = s.if.required!.every((key) => new RegExp(`^${key}:`, 'm').test(text)) ? s.then! : s.else!;
  return s;
}

/** All forms that a part of the schema allows. */
function forms(s: Schema): Schema[] {
  const target = s.$ref ? definitions[s.$ref.replace('#/$defs/', '')] : undefined;
  return [s, ...(target ? forms(target) : []), ...(s.anyOf ?? []).flatMap(forms)];
}

function step(from: Schema[], key: string): Schema[] {
  return from.flatMap((s) => {
    const next =
      key === '[]'
        ? s.items
        : (s.properties?.[key] ??
          (typeof s.additionalProperties === 'object' ? s.additionalProperties : undefined));
    return next ? forms(next) : [];
  });
}

/** Where a place is: the keys above it, "[]" for an item of a list, and what of its line is its own. */
export function placeOf(before: string): { path: string[]; rest: string } {
  const lines = before.split('\n');
  const line = lines.pop()!;
  const [, dashes, own] = /^((?: |- )*)(.*)$/.exec(line) as unknown as [string, string, string];
  const path: string[] = [];
  // What stands further left, above.
  let left = dashes.length;
  const up = (upTo: number) => {
    left = upTo;
    for (let n = lines.length - 1; n >= 0 && left > 0; n--) {
      const [, d, text] = /^((?: |- )*)(.*)$/.exec(lines[n]!) as unknown as [string, string, string];
      if (text === '' || text.startsWith('#')) continue;
      const key = /^["']?([\w-]+)["']?:(?:\s|$)/.exec(text)?.[1];
      if (!key || d.length >= left) continue;
      path.unshift(key);
      left = d.length;
      for (let dash = d.lastIndexOf('-'); dash >= 0; dash = d.lastIndexOf('-', dash - 1)) {
        path.unshift('[]');
        left = dash;
        if (dash === 0) break;
      }
    }
  };
  const first = dashes.indexOf('-');
  if (first < 0) up(dashes.length);
  else {
    up(first + 1); // a list may stand as far left as its key
    path.push('[]');
  }
  // What is open in its own line: { key: [a, b
  let word = '';
  let key = '';
  const open: string[][] = [];
  for (const c of own) {
    if (c === '{' || c === '[') {
      const at = key ? [key] : [];
      open.push(c === '[' ? [...at, '[]'] : at);
      key = word = '';
    } else if (c === '}' || c === ']') {
      open.pop();
      key = word = '';
    } else if (c === ',') key = word = '';
    else if (c === ' ' && word.endsWith(':')) {
      key = word.slice(0, -1).trim();
      word = '';
    } else word += c;
  }
  const inText = path.at(-1) === '[]' && open.length > 0 && /^[a-z]+ /.test(own);
  if (inText) return { path, rest: own }; // the list of a rule's words
  return { path: [...path, ...open.flat(), ...(key ? [key] : [])], rest: word.trimStart() };
}

const actions = ['allow', 'drop', 'reject', 'clamp mss'];
const clauses: Record<string, string> = {
  from: 'a set, a zone, addresses',
  to: 'a set, a zone, addresses',
  in: 'a zone',
  out: 'a zone',
  limit: '10/minute per source',
  max: '20 connections per source',
  until: 'a moment',
  log: 'a prefix',
  ipv4: '',
  ipv6: '',
};
const built = definitions['service-word']!.examples!;

function ofRule(rest: string, section: string, names: Names): Completion[] {
  const said = rest.replace(/\S*$/, '').trimEnd();
  const last = /(\S+)$/.exec(said.replace(/\[[^\]]*$/, '').trimEnd())?.[1] ?? '';
  const list = (all: string[], type: string, detail: string) => all.map((label) => ({ label, type, detail }));
  if (said === '')
    return list(section === 'expect' ? ['allow', 'deny', 'drop', 'reject'] : actions, 'keyword', '');
  if (last === 'from' || last === 'to' || last === 'not')
    return [...list(names.sets, 'variable', 'set'), ...list(names.zones, 'namespace', 'zone')];
  if (last === 'in' || last === 'out') return list(names.zones, 'namespace', 'zone');
  const after = Object.entries(clauses).map(([label, detail]) => ({ label, type: 'keyword', detail }));
  if (/^(allow|drop|reject|deny)( published)?$/.test(said.replace(/\[[^\]]*$/, '').trimEnd()))
    return [
      ...list(names.services, 'function', 'service of the policy'),
      ...list(built, 'function', 'service'),
      { label: 'any', type: 'keyword' },
      ...after,
    ];
  return after;
}

/** What completes a place. */
export function complete(context: CompletionContext, names: Names): CompletionResult | null {
  const word = context.matchBefore(/[\w-]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const { path, rest } = placeOf(context.state.sliceDoc(0, context.pos));
  const options: Completion[] = [];
  const key = path.filter((p) => p !== '[]').at(-1) ?? '';
  const section = path[0] ?? '';
  if (key === 'rules' || (section === 'expect' && path.length > 1)) {
    if (path.at(-1) === '[]') options.push(...ofRule(rest, section, names));
  } else if (key === 'countries')
    options.push(...codes().map((label) => ({ label, detail: countryName(label), type: 'constant' })));
  else if (['union', 'except', 'ban', 'never-ban'].includes(key))
    options.push(...names.sets.map((label) => ({ label, type: 'variable', detail: 'set' })));
  else if (key === 'default')
    options.push(...['allow', 'drop', 'reject'].map((label) => ({ label, type: 'keyword' })));
  let at = forms(kind(context.state.doc.toString()));
  for (const p of path) at = step(at, p);
  const atKey = /^[\w-]*$/.test(rest);
  const seen = new Set<string>();
  for (const s of atKey ? at : []) {
    for (const [label, of] of Object.entries(s.properties ?? {})) {
      if (seen.has(label) || path.at(-1) === 'rules') continue;
      seen.add(label);
      options.push({ label, apply: `${label}: `, info: of.description, type: 'property', boost: -1 });
    }
    for (const label of [...(s.enum ?? []), ...(s.examples ?? [])])
      if (!seen.has(label)) {
        seen.add(label);
        options.push({ label, type: 'constant' });
      }
  }
  return options.length > 0 ? { from: word.from, options, validFor: /^[\w-]*$/ } : null;
}
