// The page of one host, by a real agent, real packets and a real browser.
import { everybodyCanRead, hostile, hostileIsText, hostileRule, keysReachAll } from './every.mjs';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import {
  browser,
  Connection,
  EchoServer,
  inside,
  ListServer,
  Local,
  Person,
  reaches,
  scene,
  sluice,
  until,
} from './lib.mjs';

let chromium, session, pages;
const local = new Local();

before(async () => {
  chromium = await browser();
  const address = await local.start();
  await sluice(scene.host, 'ban', '192.0.2.99', '--for', '2h', '-m', hostile);
  const policy = readFileSync(scene.policy, 'utf8').replace(/(input:\n.*\n  rules:\n)/, `$1${hostileRule}\n`);
  writeFileSync(scene.policy, `# ${hostile}\n${policy}`);
  await sluice(scene.host, 'apply', scene.policy, '--no-confirm', '-m', hostile);
  const person = await Person.at(chromium, address);
  pages = [
    ...(await person.pages()),
    ...['rules', 'connections', 'log', 'history'].map((t) => `/host?tab=${t}`),
  ];
  session = await person.context.storageState();
  await person.end();
});
after(async () => {
  await chromium.close();
  await local.stop();
});

/** Has the host run a text, from its file. */
async function runs(text) {
  writeFileSync(scene.policy, text);
  await sluice(scene.host, 'apply', scene.policy, '--no-confirm');
}

/** A window of the page at a path of it. */
async function at(path, options = {}) {
  const person = await Person.at(chromium, local.url.origin + path, { session, ...options });
  await person.settled();
  return person;
}

test('everybody can read it', (t) => everybodyCanRead(t, chromium, session, local.url.origin, pages));
test('keys reach all', (t) => keysReachAll(t, chromium, session, local.url.origin, pages));
test('hostile text is text', async (t) => {
  const office = scene.clients.find((c) => c.name === 'the office');
  await reaches(office, 23); // is dropped, and logged
  const shown = [
    '/policy',
    '/bans',
    '/host?tab=rules',
    '/host?tab=log',
    '/host?tab=history',
    '/log?service=telnet',
    `/ask?kind=explain&source=${office.ipv4}&port=telnet`,
  ];
  await hostileIsText(t, chromium, session, local.url.origin, pages, shown);
});

test('the overview says proved of what is proved, and drift of what somebody changed', async () => {
  const person = await at('/');
  const word = person.page.locator('main .badge').first();
  await word.filter({ hasText: 'proved' }).waitFor();
  await inside(
    scene.host,
    'nft',
    'insert',
    'rule',
    'inet',
    'sluice',
    'input',
    'tcp',
    'dport',
    '9999',
    'accept',
  );
  await word.filter({ hasText: 'drift' }).waitFor();
  await person.page.getByText(':9999').first().waitFor();
  await sluice(scene.host, 'restore');
  await word.filter({ hasText: 'proved' }).waitFor();
  await person.end();
});

test('a host: its proof, rules with hits, connections and log', async () => {
  const person = await at('/host');
  await person.see('button', 'Verify now').click();
  await person.page.getByText('Every packet gets what the policy says').waitFor();
  await person.see('link', 'Rules').click();
  await person.page.getByText('allow web from visitors').first().waitFor();
  await person.see('link', 'Connections').click();
  await person.settled();
  await person.page.getByLabel('Parts of this page').getByRole('link', { name: 'Log' }).click();
  await person.page.getByText('default: drop').first().waitFor();
  await person.end();
});

test('the policy: an error at its line as one types, what a change opens, a trial of it', async () => {
  const brazil = scene.clients.find((c) => c.name === 'Brazil');
  assert.ok(!(await reaches(brazil, 22)));
  const person = await at('/policy');
  await person.write('- allow ping', '    - allow ssh frm brazil');
  await person.page.locator('.cm-lintRange-error').first().waitFor();
  await person.page.keyboard.press('Shift+Home');
  await person.page.keyboard.insertText(`- allow ssh from ${brazil.ipv4}`);
  await person.page.locator('.badge', { hasText: 'opens' }).waitFor();
  await person.see('button', 'Plan').click();
  await person.see('heading', 'Plan').waitFor();
  await person.see('button', 'Apply for 60 s').click();
  await person.see('button', 'Roll back').waitFor();
  await until('Brazil gets in', () => reaches(brazil, 22));
  await person.page.reload(); // the change is one again once it is rolled back
  await person.see('button', 'Roll back').click();
  await person.page.getByText('The previous policy runs again').waitFor();
  assert.ok(!(await reaches(brazil, 22)));
  await person.see('button', 'Drop the changes').click();
  await person.end();
});

test('the policy on the disk: edited, tried, kept, and saved though the page was loaded again', async () => {
  const was = readFileSync(scene.policy, 'utf8');
  const person = await at('/policy');
  await person.write('- allow ping', '    - allow tcp/2222 from office # a remark — ✓');
  await person.see('button', 'Plan').click();
  await person.see('heading', 'Plan').waitFor();
  await person.see('button', 'Apply for 60 s').click();
  await person.see('button', 'Keep it').click();
  const save = person.see('button', `Save ${scene.policy}`);
  await save.waitFor();
  assert.equal(readFileSync(scene.policy, 'utf8'), was);
  await person.page.reload();
  await save.click();
  await person.page.getByText('The files on the disk are what runs.').waitFor();
  const is = readFileSync(scene.policy, 'utf8');
  assert.match(is, /^    - allow tcp\/2222 from office # a remark — ✓$/m);
  assert.equal(is.replace('\n    - allow tcp/2222 from office # a remark — ✓', ''), was);
  assert.doesNotMatch(await sluice(scene.host, 'status'), /edited|other text/);
  await person.page.reload();
  await person.settled();
  await person.page.getByText('Nothing has been changed.').waitFor();
  assert.equal(await save.count(), 0);
  await person.end();
  await runs(was);
});

test('a list of a host: its age, one that shrank, what another would change, taken', async () => {
  const was = readFileSync(scene.policy, 'utf8');
  const germany = scene.clients.find((c) => c.name === 'Germany');
  const lines = Array.from({ length: 20 }, (_, n) => `192.0.2.${2 * n + 101}`);
  const server = new ListServer(scene.host);
  const mail = new EchoServer(scene.host, 25);
  const held = new Connection(germany, scene.host.address, 25);
  server.serve(...lines);
  await server.start();
  try {
    await runs(
      was
        .replace('\nsets:\n', `\nsets:\n  scanners: { url: "${server.url}", refresh: 1h }\n`)
        .replace('except: [banned]', 'except: [banned, scanners]')
        .replace('ban: [banned]', 'ban: [banned, scanners]'),
    );
    await mail.start();
    await held.start();
    const person = await at('/lists');
    const row = person.page.getByRole('row', { name: /^scanners/ });
    await row.getByText('of', { exact: false }).locator('time').first().waitFor();
    const look = row.getByRole('button', { name: 'What would change?' });
    const would = person.page.getByRole('region', { name: 'What a newer one would change' });
    server.serve(...lines.slice(0, 5));
    await look.click();
    await would.locator('.badge', { hasText: 'refused' }).waitFor();
    await would.getByText('it may be truncated').waitFor();
    server.serve(...lines, germany.ipv4);
    await look.click();
    await would.locator('strong', { hasText: 'visitors' }).waitFor();
    await would.getByText(new RegExp(`tcp ${germany.ipv4}:\\d+ → .*:25\\s+ends`)).waitFor();
    assert.ok(await reaches(germany, 25), 'nothing is taken yet');
    await would.getByRole('button', { name: 'Accept it and cut these off' }).click();
    await person.page
      .getByRole('dialog')
      .getByRole('button', { name: /^Accept it/ })
      .click();
    await person.page.getByText(/It is loaded: generation \d+ runs/).waitFor();
    assert.ok(!(await reaches(germany, 25)));
    await person.end();
  } finally {
    await held.stop();
    await mail.stop();
    await server.stop();
    await runs(was);
  }
});

test('the map: exact, a country by its shape, a draft with its diff', async () => {
  const person = await at('/map');
  await person.page.locator('svg [aria-label^="Germany"][aria-label*="allowed"]').waitFor();
  await person.page.locator('svg [aria-label^="Brazil"][aria-label*="blocked"]').focus();
  await person.page.keyboard.press('Enter');
  assert.match(person.page.url(), /countries=BR/);
  await person.page.locator('section[aria-labelledby="selected"] button.main').first().click();
  await person.page.locator('.badge', { hasText: 'opens' }).waitFor();
  await person.see('button', 'Drop the changes').click();
  // San Marino has no shape at this scale.
  await person.visit('/map');
  await person.page.getByLabel('Find a country').fill('San Marino');
  await person.page.getByRole('checkbox', { name: 'San Marino' }).waitFor();
  await person.end();
});

test('the log: live, filtered by what the address says, a row and why', async () => {
  const person = await at('/log?country=US');
  await person.page.getByText('Live.').waitFor();
  const row = person.page.locator('[data-row]', { hasText: 'US' }).last();
  await row.waitFor();
  assert.equal(await person.page.locator('[data-row]', { hasText: 'CN' }).count(), 0);
  await row.click();
  await person.see('heading', 'Now').waitFor();
  await person.page.getByText('default: drop').last().waitFor();
  await person.end();
});

test('a customer in a blocked country: found, understood and let in for two hours, in 4 clicks', async () => {
  const customer = scene.clients.find((c) => c.name === 'Japan');
  assert.ok(!(await reaches(customer, 80)));
  const person = await at('/');
  await person.page.getByLabel('Find an address in the log').fill(customer.ipv4);
  await person.see('button', 'Find').click();
  await person.page.locator('[data-row]', { hasText: customer.ipv4 }).last().click();
  await person.page.getByText('default: drop').last().waitFor();
  await person.see('button', /^Allow .*for 2 h/).click();
  await person.page
    .getByRole('dialog')
    .getByRole('button', { name: /^Allow/ })
    .click();
  await until('the customer gets in', () => reaches(customer, 80));
  assert.ok(person.clicks <= 4, `${person.clicks} clicks`);
  assert.ok(!(await reaches(customer, 25)), 'only what he asked for');
  await sluice(scene.host, 'disallow', customer.ipv4);
  await person.end();
});

test('a rule of a row of the log: a draft with what it opens', async () => {
  const person = await at('/log?country=US&service=ssh');
  await person.page.locator('[data-row]', { hasText: 'US' }).last().click();
  await person.see('link', 'Make a rule').click();
  await person.page.locator('.badge', { hasText: 'opens' }).waitFor();
  await person.page.getByText(/a new rule of input/).waitFor();
  await person.see('button', 'Drop the changes').click();
  await person.end();
});

test('a ban: said before it holds, in force, and lifted', async () => {
  const person = await at('/bans');
  await person.page.getByLabel('Address, prefix or range').fill('192.0.2.77');
  await person.see('button', 'Ban', { exact: true }).click();
  const dialog = person.page.getByRole('dialog');
  await dialog.getByText('192.0.2.77').first().waitFor();
  await dialog.getByLabel(/^Why/).fill('scans');
  await dialog.getByRole('button', { name: 'Ban' }).click();
  const row = person.page.getByRole('row', { name: /192\.0\.2\.77/ });
  await row.getByText('in force').waitFor();
  await row.getByText('scans').waitFor();
  assert.match(await sluice(scene.host, 'bans'), /192\.0\.2\.77/);
  await row.getByRole('button', { name: 'Lift' }).click();
  await person.page.getByRole('dialog').getByRole('button', { name: 'Lift' }).click();
  await row.waitFor({ state: 'detached' });
  assert.doesNotMatch(await sluice(scene.host, 'bans'), /192\.0\.2\.77/);
  await person.end();
});

test('a question in one line, whose answer is a link', async () => {
  const person = await at('/ask');
  await person.page.getByLabel('In one line').fill('who reaches ssh');
  await person.page.keyboard.press('Enter');
  const answer = person.page.getByLabel('Answer');
  await answer.getByText('office').first().waitFor();
  await person.page.reload();
  await answer.getByText('office').first().waitFor();
  const blocked = scene.clients.find((c) => c.name === 'Japan');
  await person.page.getByLabel('In one line').fill(`${blocked.ipv4} to http`);
  await person.page.keyboard.press('Enter');
  await answer.getByText('default: drop').first().waitFor();
  await person.end();
});

test('a server that is away is told, and its return too', async () => {
  const person = await at('/');
  const told = person.page.getByText(/does not answer|is lost/).first();
  await local.stop();
  await told.waitFor();
  // Who starts it again opens the page by another address; the window from before heals by it.
  await (await person.context.newPage()).goto(await local.start());
  await told.waitFor({ state: 'detached' });
  session = await person.context.storageState();
  await person.end();
});
