// The page of a fleet: a real controller, five real hosts, real packets, a real browser.
import { everybodyCanRead, hostile, hostileIsText, hostileRule, keysReachAll } from './every.mjs';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import {
  browser,
  Connection,
  controller,
  inside,
  link,
  ListServer,
  patience,
  Person,
  publish,
  reaches,
  run,
  running,
  scene,
  until,
} from './lib.mjs';

const url = scene.fleet.url;
const repository = ['--repository', scene.fleet.repository];
let chromium, session, pages;

before(async () => {
  chromium = await browser();
  await controller('ban', '192.0.2.99', '--for', '2h', '-m', hostile);
  await publish(
    {
      'parts/80-telnet.yaml': `# ${hostile}\nversion: 1\nhosts: role=web\ninput:\n  rules:\n${hostileRule}\n`,
    },
    '--wait',
  );
  // What the most hostile labels are that a host may have.
  const labels = ['web-2', 'role=web', 'env=prod', 'constructor=javascript:__told'];
  await run('sluice-controller', 'sign', 'labels', ...labels, '--key', scene.fleet.key, ...repository);
  await controller('publish', 'labels', ...repository);
  await until('the host has its labels', async () =>
    /^web-2 +proved/m.test(await controller('hosts', 'constructor=javascript:__told')),
  );
  const person = await Person.at(chromium, await link());
  await person.page.getByRole('button', { name: 'Log in' }).click();
  await person.settled();
  const tabs = [
    '/hosts/web-1',
    '/hosts/db-1?tab=rules',
    '/rollouts/1',
    ...['access', 'tokens', 'keys', 'audit'].map((t) => `/admin?tab=${t}`),
  ];
  pages = [...(await person.pages()), ...tabs];
  session = await person.context.storageState();
  await person.end();
});
after(() => chromium.close());

/** A window of the page at a path of it. */
async function at(path, options = {}) {
  const person = await Person.at(chromium, url + path, { session, ...options });
  await person.settled();
  return person;
}

test('everybody can read it', (t) => everybodyCanRead(t, chromium, session, url, pages));
test('keys reach all', (t) => keysReachAll(t, chromium, session, url, pages));
test('hostile text is text', async (t) => {
  const web1 = scene.fleet.hosts[0].address;
  await reaches(scene.fleet, 23, web1); // is dropped, and logged
  const shown = [
    '/policy?file=parts/80-telnet.yaml',
    '/hosts/web-1?tab=rules',
    '/hosts/web-1?tab=log',
    '/log?service=telnet',
    '/bans',
    `/ask?kind=explain&source=10.99.0.1&destination=${web1}&port=telnet&hosts=role%3Dweb`,
  ];
  await hostileIsText(t, chromium, session, url, pages, shown);
});

test('the hosts by a label that is a word of the browser too', async () => {
  const person = await at('/hosts?labels=constructor');
  await person.page.getByText('1 of 5 hosts').waitFor();
  await person.page.getByText('constructor=javascript:__told').first().waitFor();
  await person.end();
});

test('the hosts: a filter that the address keeps, and each by its name', async () => {
  const person = await at('/');
  await person.see('link', /5 proved/).click();
  await person.page.getByLabel('Labels').fill('role=db');
  await person.page.getByText('2 of 5 hosts').waitFor();
  assert.match(person.page.url(), /state=proved&labels=role%3Ddb/);
  await person.page.reload();
  await person.page.getByText('2 of 5 hosts').waitFor();
  await person.see('link', 'db-1').click();
  await person.page.getByText('10.99.0.14').first().waitFor();
  await person.see('link', 'Rules').click();
  await person.page.getByText('allow postgresql from web').first().waitFor();
  await person.end();
});

test('one country more for the web group: its diff, signed, rolled out with a canary, in 8 clicks', async () => {
  const person = await at('/');
  await person.see('link', 'Policy').click();
  await person.see('link', /50-web/).click();
  const part = person.page.locator('.cm-line', { hasText: 'countries:' });
  await part.click();
  await person.page.keyboard.press('End');
  for (let n = 0; n < 3; n++) await person.page.keyboard.press('ArrowLeft');
  await person.page.keyboard.insertText(', BR');
  await person.page.locator('.badge', { hasText: 'opens' }).waitFor();
  await person.page
    .getByText(/canar|1 per class/)
    .first()
    .waitFor();
  await person.see('button', 'Save as a draft').click();
  const command = await person.page
    .getByText(/^sluice-controller sign [0-9a-f]{8,}$/)
    .first()
    .innerText();
  const draft = command.split(' ').at(-1);
  // Who signs has a shell, and no browser.
  await controller('sign', draft, '--yes', '--key', scene.fleet.key, ...repository);
  const [, bundle] = /bundle (\d+)/.exec(await controller('publish', ...repository));
  await person.see('link', 'Roll-outs').click();
  await person.see('link', `Bundle ${bundle}`).click();
  await person.page.getByText(/done/).first().waitFor();
  assert.ok(person.clicks <= 8, `${person.clicks} clicks`);
  await person.end();
});

test('the host whose drift somebody caused: its packets, restored, in 4 clicks', async () => {
  const person = await at('/');
  const host = scene.fleet.hosts.find((h) => h.name === 'web-3');
  await inside(host, 'nft', 'insert', 'rule', 'inet', 'sluice', 'input', 'tcp', 'dport', '9999', 'accept');
  await person.see('link', /1 drift/).waitFor();
  await person.see('link', 'web-3').click();
  await person.page.getByText(':9999').first().waitFor();
  await person.see('button', 'Restore').click();
  await person.page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
  await person.page.locator('.badge', { hasText: 'proved' }).first().waitFor();
  assert.ok(person.clicks <= 4, `${person.clicks} clicks`);
  assert.doesNotMatch(await inside(host, 'nft', 'list', 'table', 'inet', 'sluice'), /9999/);
  await person.end();
});

test('who can reach ssh of the databases, in 3 clicks', async () => {
  const person = await at('/');
  await person.see('link', 'Who reaches whom').click();
  await person.page.getByLabel('Find').fill('ssh db');
  const row = person.page.getByRole('row', { name: /^admins/ });
  await row.getByText('allowed').first().waitFor();
  await person.page
    .getByRole('row', { name: /^elsewhere/ })
    .getByText('blocked')
    .first()
    .waitFor();
  assert.ok(person.clicks <= 3, `${person.clicks} clicks`);
  await person.end();
});

test('a roll-out: paused, resumed and stopped by whoever says why', async () => {
  await controller('sign', '--floor', '1', '--days', '80', '--key', scene.fleet.key, ...repository);
  await controller('publish', '--not-before', '1h', ...repository);
  const person = await at('/rollouts');
  await person.page.locator('main a', { hasText: /undle/ }).first().click();
  const steer = async (command) => {
    await person.see('button', command).click();
    const dialog = person.page.getByRole('dialog');
    await dialog.getByLabel(/^Why/).fill(`ticket 4711: ${hostile}`);
    await dialog.getByRole('button', { name: command }).click();
  };
  await steer('Pause');
  await person.page.locator('.badge', { hasText: 'paused' }).waitFor();
  await person.page.getByText('<script>__told').first().waitFor();
  await steer('Resume');
  await person.page.locator('.badge', { hasText: 'paused' }).waitFor({ state: 'detached' });
  await steer('Halt');
  await person.page
    .locator('.badge', { hasText: /halted|revert/ })
    .first()
    .waitFor();
  await person.end();
});

test('a ban of the fleet: proved on each host, and lifted', async () => {
  const person = await at('/bans');
  await person.page.getByLabel('Address, prefix or range').fill('192.0.2.77');
  await person.see('button', 'Ban', { exact: true }).click();
  await person.page.getByRole('dialog').getByRole('button', { name: 'Ban' }).click();
  const row = person.page.getByRole('row', { name: /192\.0\.2\.77/ });
  await row.getByText('on 5 of 5').waitFor();
  await row.getByRole('button', { name: 'Lift' }).click();
  await person.page.getByRole('dialog').getByRole('button', { name: 'Lift' }).click();
  await row.waitFor({ state: 'detached' });
  await person.end();
});

test('a live list: its age and size, one that shrank, what another would change, taken', async () => {
  const [web, other] = ['web-1', 'web-2'].map((name) => scene.fleet.hosts.find((h) => h.name === name));
  const lines = Array.from({ length: 20 }, (_, n) => `203.0.113.${2 * n + 1}`);
  const server = new ListServer(scene.fleet);
  // A machine beside the hosts, whose address is none of theirs.
  const scanner = '10.99.0.77';
  await inside(other, 'ip', 'address', 'add', `${scanner}/24`, 'dev', 'eth0');
  const held = new Connection(other, web.address, 22, scanner);
  const base = 'parts/10-base.yaml';
  const was = readFileSync(`${scene.fleet.repository}/${base}`, 'utf8');
  server.serve(...lines);
  await server.start();
  try {
    writeFileSync(
      `${scene.fleet.repository}/${base}`,
      was
        .replace('\nsets:\n', `\nsets:\n  scanners: { url: "${server.url}", live: true, refresh: 1h }\n`)
        .replace('\n  rules:\n', '\n  rules:\n    - drop from scanners\n'),
    );
    // Its server is on the loopback of the controller's namespace.
    await inside(scene.fleet, 'sluice-controller', 'sign', '--key', scene.fleet.key, ...repository);
    await controller('publish', ...repository);
    const person = await at('/lists');
    const list = person.page.getByRole('region', { name: 'scanners' });
    await list.getByText('proved on 5 hosts').waitFor();
    await list.getByText('20 prefixes').waitFor();
    await list.getByText(/ago, asked every/).waitFor();
    await held.start();

    server.serve(...lines.slice(0, 5));
    await assert.rejects(controller('lists', 'refresh', 'scanners'), /may be truncated/);
    await list.locator('.badge', { hasText: 'failing' }).waitFor();
    const look = list.getByRole('button', { name: 'What would change?' });
    await look.click();
    await list.locator('.badge', { hasText: 'refused' }).waitFor();
    await list.getByText('20 → 5 prefixes: 0 come, 15 go').waitFor();

    server.serve(...lines, scanner);
    await look.click();
    await list.getByText('20 → 21 prefixes: 1 come, 0 go').waitFor();
    await list.getByText('Which come').click();
    await list.getByText(`${scanner}/32`).waitFor();
    await list.getByText('changes on 5 hosts').waitFor();
    await list.getByText('5 hosts answered: 1 host would cut somebody').waitFor();
    await list.getByText(new RegExp(`tcp ${scanner}:\\d+ → ${web.address}:22`)).waitFor();
    const elements = () => inside(web, 'nft', 'list', 'ruleset');
    assert.ok(!(await elements()).includes(scanner), 'nothing is taken yet');
    assert.deepEqual(await person.axe(), []);
    await list.getByRole('button', { name: 'Accept it and cut these off' }).click();
    await person.page
      .getByRole('dialog')
      .getByRole('button', { name: /^Accept it/ })
      .click();
    await list.getByText('It is accepted').waitFor();
    await list.getByText('21 prefixes').waitFor();
    await list.getByText('proved on 5 hosts').waitFor();
    assert.ok((await elements()).includes(scanner));
    await person.end();
  } finally {
    await held.stop();
    await server.stop();
    await publish({ [base]: was });
  }
});

test('the map of the web group, exact, by class', async () => {
  const person = await at('/map?hosts=role%3Dweb&service=http');
  await person.page.locator('svg [aria-label^="Germany"][aria-label*="allowed"]').waitFor();
  await person.page.locator('svg [aria-label^="Japan"][aria-label*="blocked"]').waitFor();
  await person.end();
});

test('the log of all hosts, live', async () => {
  const person = await at('/log');
  await person.page.getByText('Live.').waitFor();
  for (const name of ['web-1', 'db-1'])
    await person.page.locator('[data-row]', { hasText: name }).first().waitFor();
  await person.end();
});

test('the audit: who did what, exported, and the chain verified', async () => {
  const person = await at('/admin?tab=audit');
  await person.page.getByLabel('Has').fill('publish');
  await person.page.locator('main table').getByText('operator:root').first().waitFor();
  const [download] = await Promise.all([
    person.page.waitForEvent('download'),
    person.see('button', 'Export these').click(),
  ]);
  assert.match(readFileSync(await download.path(), 'utf8'), /^\{.*"what":"publish".*\}\n$/m);
  await person.see('button', 'Verify the chain').click();
  await person.page.locator('.badge', { hasText: 'whole' }).waitFor();
  await person.end();
});

test('each state of the overview leads to just those hosts', async () => {
  const person = await at('/');
  const { hosts, repository } = scene.fleet;
  /** Goes from the overview to the hosts of a state, which there have to be. */
  const leads = async (state, least = 1) => {
    const are = async () => {
      // It exits with 1 where some are not proved.
      const out = await controller('hosts', '--json').catch((error) => error.stdout);
      const found = JSON.parse(out).hosts.filter((h) => h.state === state);
      return found.length >= least && found.map((h) => h.host).sort();
    };
    await until(`hosts are ${state}`, are, 3 * patience);
    await person.visit('/');
    await person.see('link', new RegExp(`^[0-9]+ ${state}`)).click();
    await until(`the page lists those that are ${state}`, async () => {
      const links = await person.page.locator('main a[href^="/hosts/"]').allInnerTexts();
      return links.sort().join() === (await are()).join();
    });
    assert.match(person.page.url(), new RegExp(`/hosts\\?state=${state}$`));
  };
  const silent = running('agent', hosts.at(-1).state);
  silent.signal('SIGSTOP');
  const fleet = readFileSync(`${repository}/fleet.yaml`, 'utf8');
  // Nothing answers there: hosts try the policy for as long as they may, and take it back then.
  const tried = (time) => ({
    'fleet.yaml': fleet.replace(
      'probes: [controller]',
      `on-halt: hold, confirm: ${time}, probes: ["tcp localhost:8081"]`,
    ),
  });
  try {
    await publish(tried('10m'));
    await leads('stale');
    await publish(tried('5s'));
    await leads('refused');
    await leads('offline');
    await person.see('link', hosts.at(-1).name).click();
    await person.page.getByText('This host is not connected').waitFor();
  } finally {
    silent.signal('SIGCONT');
  }
  await publish({ 'fleet.yaml': fleet }, '--wait');
  await leads('proved', 5);
  for (const none of ['drift', 'stale', 'offline', 'refused']) await leads(none, 0);
  await person.end();
});

test('the machines on a host', async () => {
  const { machine, hosts } = scene.fleet;
  const on = hosts.at(-1);
  const person = await at(`/hosts/${on.name}`);
  await person.see('link', 'Machines').click();
  await person.page.getByText('None.').waitFor();
  const is = ['--host', on.name, '--interface', machine.interface, '--address', machine.address];
  await controller('guest', 'put', 'search-1', 'app=search', 'constructor=javascript:__told', ...is);
  await until('it is proved', () => controller('guest', 'show', 'search-1'));
  await person.page.reload();
  const row = person.page.getByRole('row', { name: /search-1/ });
  await row.locator('.badge.is-good', { hasText: 'proved' }).waitFor();
  for (const text of [machine.interface, machine.address, 'app=search']) await row.getByText(text).waitFor();
  await until('its service is reached', () => reaches(scene.fleet, 443, machine.address));
  assert.ok(!(await reaches(scene.fleet, 9200, machine.address)));
  await person.visit('/hosts/db-1?tab=machines');
  await person.page.getByText('None.').waitFor();
  await person.end();
});
