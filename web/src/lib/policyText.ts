// Edits of a policy's text that leave its comments and layout as they are: each changes the
// places alone that it is about.

import { isMap, isScalar, isSeq, parseDocument, type Node, type Pair, type YAMLMap } from 'yaml';

/** The names that a policy defines, and what rules may call them for. */
export interface Names {
  sets: string[];
  zones: string[];
  services: string[];
}

type Section = 'input' | 'output' | 'forward';

function root(text: string): YAMLMap | undefined {
  const contents = parseDocument(text).contents;
  return isMap(contents) ? contents : undefined;
}

function pair(map: unknown, key: string): Pair<Node, Node | null> | undefined {
  if (!isMap(map)) return undefined;
  return map.items.find((p) => isScalar(p.key) && p.key.value === key) as Pair<Node, Node | null> | undefined;
}
const at = (map: unknown, ...keys: string[]): Node | null | undefined => {
  let node: unknown = map;
  for (const key of keys) node = pair(node, key)?.value;
  return node as Node | null | undefined;
};
const keys = (node: unknown): string[] =>
  isMap(node) ? node.items.map((p) => String(isScalar(p.key) ? p.key.value : p.key)) : [];

/** Which names the files define. */
export function namesOf(texts: string[]): Names {
  const all = (key: string) => [...new Set(texts.flatMap((text) => keys(at(root(text), key))))].sort();
  return { sets: all('sets'), zones: all('zones'), services: all('services') };
}

function words(node: unknown): string[] {
  if (isSeq(node)) return node.items.map((i) => String(isScalar(i) ? i.value : i));
  return isScalar(node) && node.value !== null ? [String(node.value)] : [];
}

/** Which countries the set names, in capital letters; undefined where it is not a set of countries or continents. */
export function countriesOf(text: string, set: string): string[] | undefined {
  const node = at(root(text), 'sets', set);
  if (!pair(node, 'countries') && !pair(node, 'continents')) return undefined;
  return words(at(node, 'countries')).map((c) => c.toUpperCase());
}

/** The sets that a set unites; none where it is not a union. */
export function unionOf(text: string, set: string): string[] {
  return words(at(root(text), 'sets', set, 'union'));
}

// Norway is false in other readers of YAML.
const written = (code: string) => (code === 'NO' ? '"NO"' : code);
const splice = (text: string, from: number, to: number, by: string) =>
  text.slice(0, from) + by + text.slice(to);
const lineStart = (text: string, at: number) => text.lastIndexOf('\n', at - 1) + 1;
const lineEnd = (text: string, at: number) => {
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end;
};
const indentOf = (text: string, at: number) => /^ */.exec(text.slice(lineStart(text, at)))![0];

/** A line behind that of a place; the place is the last character of something. */
function lineBehind(text: string, place: number, line: string): string {
  const end = lineEnd(text, Math.max(place, 0));
  return text.slice(0, end) + '\n' + line + (end < text.length ? text.slice(end) : '\n');
}

/** The text with countries added to a set of countries or continents; undefined where it cannot be done. */
export function addCountries(text: string, set: string, codes: string[]): string | undefined {
  const node = at(root(text), 'sets', set);
  const has = countriesOf(text, set);
  if (!has || !isMap(node)) return undefined;
  const fresh = codes.filter((c) => !has.includes(c));
  if (fresh.length === 0) return text;
  const list = fresh.map(written).join(', ');
  const countries = at(node, 'countries');
  if (isSeq(countries) && countries.items.length > 0) {
    const last = countries.items.at(-1) as Node;
    if (countries.flow) return splice(text, last.range![1], last.range![1], `, ${list}`);
    const first = countries.items[0] as Node;
    const dash = text.slice(lineStart(text, first.range![0]), first.range![0]);
    return lineBehind(text, last.range![1] - 1, fresh.map((c) => dash + written(c)).join('\n'));
  }
  if (countries?.range) {
    const now = has.map(written);
    return splice(text, countries.range[0], countries.range[1], `[${[...now, list].join(', ')}]`);
  }
  const continents = pair(node, 'continents')!;
  const end = continents.value!.range![1];
  if (node.flow) return splice(text, end, end, `, countries: [${list}]`);
  const key = continents.key.range![0];
  return lineBehind(text, end - 1, `${' '.repeat(key - lineStart(text, key))}countries: [${list}]`);
}

/** The text with countries taken out of a set that names them; undefined where none would be left. */
export function removeCountries(text: string, set: string, codes: string[]): string | undefined {
  for (const code of codes) {
    const countries = at(root(text), 'sets', set, 'countries');
    if (!isSeq(countries)) return undefined;
    const items = countries.items as Node[];
    const n = items.findIndex((i) => isScalar(i) && String(i.value).toUpperCase() === code);
    if (n < 0 || items.length === 1) return undefined;
    const { range } = items[n]!;
    if (!countries.flow)
      text = splice(text, lineStart(text, range![0]), lineEnd(text, range![1] - 1) + 1, '');
    else if (n > 0) text = splice(text, items[n - 1]!.range![1], range![1], '');
    else text = splice(text, range![0], items[1]!.range![0], '');
  }
  return text;
}

/** The line of a rule as YAML has it in a list. */
function quoted(rule: string): string {
  const [line] = rule.split('\n');
  const plain = /^[A-Za-z]/.test(line!) && !/: |:$| #|\s$/.test(line!);
  return plain ? line! : `'${line!.replaceAll("'", "''")}'`;
}

/** The text with a rule in a section: before the rule that is in the line, counted from 1, or else behind the last one. */
export function addRule(text: string, section: Section, rule: string, line = 0): string | undefined {
  const map = root(text);
  const whole = pair(map, section);
  const rules = at(map, section, 'rules');
  const item = `- ${quoted(rule)}`;
  if (isSeq(rules) && rules.items.length > 0 && !rules.flow) {
    const all = rules.items as Node[];
    const lineOf = (n: Node) => text.slice(0, n.range![0]).split('\n').length;
    const before = all.find((n) => lineOf(n) === line);
    const dash = indentOf(text, all[0]!.range![0]);
    if (before) {
      const start = lineStart(text, before.range![0]);
      return splice(text, start, start, `${dash}${item}\n`);
    }
    return lineBehind(text, all.at(-1)!.range![1] - 1, dash + item);
  }
  if (isSeq(rules) && rules.flow && rules.items.length > 0) {
    const end = (rules.items.at(-1) as Node).range![1];
    return splice(text, end, end, `, '${rule.replaceAll("'", "''")}'`);
  }
  if (!whole) return `${text.replace(/\n*$/, '\n')}\n${section}:\n  rules:\n    ${item}\n`;
  if (isMap(whole.value) && !whole.value.flow && whole.value.items.length > 0) {
    const empty = pair(whole.value, 'rules');
    if (empty)
      return lineBehind(text, empty.key.range![1], `${indentOf(text, empty.key.range![0])}  ${item}`);
    const last = whole.value.items.at(-1)!;
    const end = ((last.value ?? last.key) as Node).range![1];
    const indent = indentOf(text, (whole.value.items[0]!.key as Node).range![0]);
    return lineBehind(text, end - 1, `${indent}rules:\n${indent}  ${item}`);
  }
  return undefined;
}

/** The text with a set more; undefined where the name is taken or its sets cannot be added to. */
export function addSet(text: string, name: string, value: string): string | undefined {
  const map = root(text);
  const sets = pair(map, 'sets');
  if (!sets) {
    const version = pair(map, 'version');
    const line = `\nsets:\n  ${name}: ${value}`;
    return version ? lineBehind(text, version.value!.range![1] - 1, line) : undefined;
  }
  if (!isMap(sets.value) || sets.value.flow || pair(sets.value, name)) return undefined;
  const first = sets.value.items[0]!.key as Node;
  return lineBehind(text, sets.key.range![1], `${indentOf(text, first.range![0])}${name}: ${value}`);
}

/** The first line, from 1, in which a text is another than it was; 0 where it is the same. */
export function changedLine(was: string, now: string): number {
  const lines = was.split('\n');
  return now.split('\n').findIndex((line, n) => line !== lines[n]) + 1;
}

/** The sets that a rule's line takes its sources from. */
export function sourcesOf(rule: string): string[] {
  const list = /\bfrom\s+(not\s+)?(\[[^\]]*\]|\S+)/.exec(rule);
  if (!list || list[1]) return [];
  return list[2]!
    .replace(/[[\]]/g, '')
    .split(',')
    .map((w) => w.trim());
}

/** The rules for what comes in and goes through, as one line each. */
export function rulesOf(texts: string[]): string[] {
  return texts.flatMap((text) =>
    ['input', 'forward'].flatMap((section) => words(at(root(text), section, 'rules'))),
  );
}

/** The services that rules let in, in the order of the rules: as one would ask about them. */
export function servicesOf(rules: string[]): string[] {
  const said = rules.flatMap((rule) => {
    const found = /^allow (?:published )?(\[[^\]]*\]|(?!from\b|to\b|in\b|out\b)\S+)/.exec(rule)?.[1] ?? '';
    return found
      .replace(/[[\]]/g, '')
      .split(',')
      .map((w) => w.trim());
  });
  return [...new Set(said)].filter((s) => s && s !== 'any');
}
