// The page of one host, by a real agent, real packets and a real browser.
import { after, before, test } from 'node:test';
import { everybodyCanRead, hostile, hostileIsText, keysReachAll } from './every.mjs';
import { browser, Local, Person, run, scene, sluice } from './lib.mjs';

let chromium, session, pages;
const local = new Local();

before(async () => {
  chromium = await browser();
  const address = await local.start();
  await sluice(scene.host, 'ban', '192.0.2.99', '--for', '2h', '-m', hostile);
  const person = await Person.at(chromium, address);
  pages = await person.pages();
  session = await person.context.storageState();
  await person.end();
});
after(async () => {
  await chromium.close();
  await local.stop();
});

/** A window of the page at a path of it. */
async function at(path, options = {}) {
  const person = await Person.at(chromium, local.url.origin + path, { session, ...options });
  await person.settled();
  return person;
}

test('everybody can read it', (t) => everybodyCanRead(t, chromium, session, local.url.origin, pages));
test('keys reach all', (t) => keysReachAll(t, chromium, session, local.url.origin, pages));
test('hostile text is text', (t) => hostileIsText(t, chromium, session, local.url.origin, pages, []));

test('the overview says proved of what is proved, and drift of what somebody changed', async () => {
  const person = await at('/');
  const word = person.page.locator('main .badge').first();
  await word.filter({ hasText: 'proved' }).waitFor();
  const netns = ['ip', 'netns', 'exec', scene.host.netns];
  await run(...netns, 'nft', 'insert', 'rule', 'inet', 'sluice', 'input', 'tcp', 'dport', '9999', 'accept');
  await word.filter({ hasText: 'drift' }).waitFor();
  await person.page.getByText(':9999').first().waitFor();
  await sluice(scene.host, 'restore');
  await word.filter({ hasText: 'proved' }).waitFor();
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
