// Edits of a policy's text change what they are about, and leave the rest as it is.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { CompletionContext } from '@codemirror/autocomplete';
import { EditorState } from '@codemirror/state';
import { createServer } from 'vite';

const vite = await createServer({
  root: new URL('..', import.meta.url).pathname,
  server: { middlewareMode: true, hmr: false, ws: false, watch: null },
  logLevel: 'error',
});
after(() => vite.close());
const edit = await vite.ssrLoadModule('/src/lib/policyText.ts');
const { read } = await vite.ssrLoadModule('/src/pages/ask/line.ts');
const { complete, placeOf } = await vite.ssrLoadModule('/src/lib/completion.ts');

const policy = `# The shop.
version: 1

sets:
  office: [203.0.113.0/24]
  visitors: { countries: [DE, FR, "NO"] }  # customers
  europe: { continents: [EU] }
  one: { countries: DE }
  banned:
    countries:
      - KP   # since 2024
      - IR
  all: { union: [visitors, office] }

input:
  default: drop log "in"
  rules:
    - drop any from banned
    # The site.
    - allow web from visitors
`;

/** What is in the one text and not in the other, line by line. */
const lines = (text, without) => {
  const rest = without.split('\n');
  return text.split('\n').filter((l) => {
    const n = rest.indexOf(l);
    if (n >= 0) rest.splice(n, 1);
    return n < 0;
  });
};
const changes = (now) => [lines(policy, now), lines(now, policy)];

test('countries are added where the set has its own, in its style', () => {
  assert.deepEqual(changes(edit.addCountries(policy, 'visitors', ['DE', 'BR'])), [
    ['  visitors: { countries: [DE, FR, "NO"] }  # customers'],
    ['  visitors: { countries: [DE, FR, "NO", BR] }  # customers'],
  ]);
  assert.deepEqual(changes(edit.addCountries(policy, 'banned', ['NO', 'BR'])), [
    [],
    ['      - "NO"', '      - BR'],
  ]);
  assert.deepEqual(changes(edit.addCountries(policy, 'europe', ['BR']))[1], [
    '  europe: { continents: [EU], countries: [BR] }',
  ]);
  assert.deepEqual(changes(edit.addCountries(policy, 'one', ['BR']))[1], ['  one: { countries: [DE, BR] }']);
  assert.equal(edit.addCountries(policy, 'office', ['BR']), undefined);
  assert.equal(edit.addCountries(policy, 'visitors', ['DE']), policy);
});

test('countries are taken out, but not the last one', () => {
  assert.deepEqual(changes(edit.removeCountries(policy, 'visitors', ['DE', 'NO']))[1], [
    '  visitors: { countries: [FR] }  # customers',
  ]);
  assert.deepEqual(changes(edit.removeCountries(policy, 'banned', ['KP'])), [
    ['      - KP   # since 2024'],
    [],
  ]);
  assert.equal(edit.removeCountries(policy, 'visitors', ['DE', 'FR', 'NO']), undefined);
  assert.equal(edit.removeCountries(policy, 'europe', ['DE']), undefined);
});

test('a rule goes before the line that decides, or behind the last one', () => {
  const before = edit.addRule(policy, 'input', 'allow ssh from office', 20);
  assert.equal(before.split('\n')[19], '    - allow ssh from office');
  assert.equal(edit.changedLine(policy, before), 20);
  assert.equal(edit.changedLine(policy, policy), 0);
  assert.deepEqual(changes(before), [[], ['    - allow ssh from office']]);
  assert.deepEqual(
    edit.addRule(policy, 'input', 'drop any log "a: b"', 16).split('\n').at(-2),
    `    - 'drop any log "a: b"'`,
  );
  assert.deepEqual(changes(edit.addRule(policy, 'output', 'drop smtp')), [
    [],
    ['output:', '  rules:', '    - drop smtp', ''],
  ]);
});

test('a set is added once', () => {
  assert.deepEqual(changes(edit.addSet(policy, 'more', '{ countries: [BR] }')), [
    [],
    ['  more: { countries: [BR] }'],
  ]);
  assert.equal(edit.addSet(policy, 'office', '[192.0.2.1]'), undefined);
});

test('names, sources and services are those of the text', () => {
  assert.deepEqual(edit.namesOf([policy]).sets, ['all', 'banned', 'europe', 'office', 'one', 'visitors']);
  assert.deepEqual(edit.unionOf(policy, 'all'), ['visitors', 'office']);
  assert.deepEqual(edit.sourcesOf('allow web from [visitors, office] limit 2/minute'), [
    'visitors',
    'office',
  ]);
  assert.deepEqual(edit.sourcesOf('allow web from not visitors'), []);
  assert.deepEqual(edit.servicesOf(edit.rulesOf([policy])), ['web']);
});

test('a line is the question that its form has', () => {
  for (const [line, question] of [
    ['who reaches ssh?', { kind: 'query', service: 'ssh', verdict: 'accept' }],
    [
      'Who can reach ssh of databases',
      { kind: 'query', service: 'ssh', verdict: 'accept', to: 'databases', hook: 'forward' },
    ],
    ['what does office reach', { kind: 'query', from: 'office', verdict: 'accept' }],
    [
      '203.0.113.9 to https',
      { kind: 'explain', source: '203.0.113.9', destination: '', port: 'https', protocol: '' },
    ],
    [
      'udp 2001:db8::9 to [2001:db8::1]:53',
      { kind: 'explain', source: '2001:db8::9', destination: '2001:db8::1', port: '53', protocol: 'udp' },
    ],
    [
      '203.0.113.9 to 198.51.100.1 tcp/22',
      { kind: 'explain', source: '203.0.113.9', destination: '198.51.100.1', port: '22', protocol: 'tcp' },
    ],
    ['diff', { kind: 'diff' }],
    ['good morning', undefined],
  ])
    assert.deepEqual(read(line), question, line);
});

test('a place knows the keys above it', () => {
  for (const [text, path] of [
    ['', []],
    ['sets:\n  office:\n    countries:\n      - D', ['sets', 'office', 'countries', '[]']],
    ['sets:\n  visitors: { countries: [DE, F', ['sets', 'visitors', 'countries', '[]']],
    ['input:\n  default: drop\n  rules:\n  - allow ssh\n  - al', ['input', 'rules', '[]']],
    ['input:\n  rules:\n    - allow [http, ht', ['input', 'rules', '[]']],
    ['input:\n  de', ['input']],
  ])
    assert.deepEqual(placeOf(text).path, path, JSON.stringify(text));
});

test('each kind of file is completed by its own keys, and services by all that are known', () => {
  /** What is offered behind a text. */
  const offered = (text) => {
    const context = new CompletionContext(EditorState.create({ doc: text }), text.length, true);
    const found = complete(context, { sets: [], zones: [], services: [] });
    return found?.options.map((o) => o.label) ?? [];
  };
  const fleet = 'version: 1\nfleet: shop\nparts: [parts/*.yaml]\n';
  for (const [text, has, hasNot] of [
    ['version: 1\n', 'input', 'roll-out'],
    [fleet, 'roll-out', 'input'],
    [`${fleet}access:\n  - `, 'role', 'from'],
    [`${fleet}access:\n  - role: `, 'operator', 'drop'],
    [`${fleet}signing: `, 'controller', 'drop'],
    ['version: 1\nfleet: fleet.yaml\nhost: web-1\n', 'members', 'roll-out'],
    ['input:\n  rules:\n    - allow ', 'wireguard', 'drop'],
    ['services:\n  web: [', 'https', 'input'],
  ]) {
    const all = offered(text);
    assert.ok(all.includes(has), `${JSON.stringify(text)}: no ${has} in ${all}`);
    assert.ok(!all.includes(hasNot), `${JSON.stringify(text)}: ${hasNot}`);
  }
});
