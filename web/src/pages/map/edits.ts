// How a policy comes to let countries in, or to keep them out: by the sets of countries that
// the rules that decide take their sources from.

import type { Agent } from '../../api/client';
import { countryName } from '../../lib/countries';
import { draft } from '../../lib/draft.svelte';
import {
  addCountries,
  addRule,
  addSet,
  countriesOf,
  removeCountries,
  sourcesOf,
  unionOf,
} from '../../lib/policyText';

type Line = Agent['ReachLine'];

/** A way to change the policy. */
export interface Edit {
  words: string;
  file: string;
  texts: Record<string, string>; // of the files that it changes
}

/** What is asked: a service of this host, or of what is behind it. */
export interface Asked {
  service: string;
  hook: 'input' | 'forward';
  to: string;
}

/** The sets of countries that a name stands for, and the files that define them. */
export function setsOf(name: string): { set: string; file: string }[] {
  return draft.parts.flatMap(({ name: file }) => {
    const text = draft.text(file);
    if (countriesOf(text, name)) return [{ set: name, file }];
    return unionOf(text, name).flatMap(setsOf);
  });
}

const distinct = (lines: Line[]) => [...new Map(lines.map((l) => [`${l.file}:${l.line}`, l])).values()];

/** The edits that let countries in, or shut them out. chosen are the places of the countries, all those of the map. */
export function edits(
  open: boolean,
  asked: Asked,
  chosen: Agent['MapPlace'][],
  all: Agent['MapPlace'][],
): Edit[] {
  const codes = chosen.map((p) => p.country!);
  const whom = codes.map(countryName).join(', ');
  const out = new Map<string, Edit>();
  const add = (words: string[], texts: Record<string, string>) => {
    const [file] = Object.keys(texts).filter((name) => texts[name] !== draft.text(name));
    const sentence = words.join(', ');
    if (file) out.set(sentence, { words: sentence[0]!.toUpperCase() + sentence.slice(1), file, texts });
  };
  const sets = (places: Agent['MapPlace'][], rule: RegExp) =>
    distinct(places.flatMap((p) => p.lines))
      .filter((l) => rule.test(l.rule))
      .flatMap((l) => sourcesOf(l.rule))
      .flatMap(setsOf);
  // Sets that let in are full of what is to be let in, and those that shut out of the rest.
  const letting = sets(
    all.filter((p) => p.state !== 'blocked'),
    /^allow /,
  );
  const shutting = sets(open ? chosen : all, /^(drop|reject) /);
  const [fill, drain] = open ? [letting, shutting] : [shutting, letting];
  const drained: Record<string, string> = {};
  const words: string[] = [];
  for (const { set, file } of drain) {
    const text = drained[file] ?? draft.text(file);
    const named = codes.filter((c) => countriesOf(text, set)?.includes(c));
    const less = named.length > 0 ? removeCountries(text, set, named) : undefined;
    if (less === undefined) continue;
    drained[file] = less;
    words.push(`take ${named.map(countryName).join(', ')} out of ${set} (${file})`);
  }
  // To be let in one has to be named, and to be shut out it is enough not to be.
  if (words.length > 0 && (!open || fill.length === 0)) add(words, drained);
  for (const { set, file } of open || words.length === 0 ? fill : []) {
    const text = addCountries(drained[file] ?? draft.text(file), set, codes);
    if (text !== undefined) add([...words, `add ${whom} to ${set} (${file})`], { ...drained, [file]: text });
  }
  if (out.size === 0) {
    const ruled = ruledBy(open, asked, chosen, codes, whom);
    if (ruled) out.set('rule', ruled);
  }
  return [...out.values()];
}

// A rule of its own, with a set of its own, where no set is there to be changed.
function ruledBy(
  open: boolean,
  asked: Asked,
  chosen: Agent['MapPlace'][],
  codes: string[],
  whom: string,
): Edit | undefined {
  const decides = chosen.flatMap((p) => p.lines).find((l) => l.file && l.line);
  const file = draft.named(decides?.file) ?? draft.parts[0]?.name ?? '';
  const set = `${open ? 'also' : 'not'}-${codes.slice(0, 3).join('-').toLowerCase()}`;
  const rule = [open ? 'allow' : 'drop', asked.service || 'any', `from ${set}`, asked.to && `to ${asked.to}`]
    .filter(Boolean)
    .join(' ');
  const ruled = addRule(draft.text(file), asked.hook, rule, decides?.line);
  const list = codes.map((c) => (c === 'NO' ? '"NO"' : c)).join(', ');
  const text = ruled && addSet(ruled, set, `{ countries: [${list}] }`);
  return text
    ? { words: `Add a rule: ${rule}, where ${set} is ${whom} (${file})`, file, texts: { [file]: text } }
    : undefined;
}
