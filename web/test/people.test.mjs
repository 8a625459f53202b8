// Several people and one controller: what it signs for one, what waits for another, and what the page
// says while it is away. It is another process afterwards: by its name this is the last file of a scene.
import { hostile } from './every.mjs';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { browser, link, patience, Person, publish, reaches, running, scene, until } from './lib.mjs';

const { url, key, repository } = scene.fleet;
const sessions = {};
let chromium, restarted;

before(async () => {
  chromium = await browser();
  for (const name of ['erika', 'max']) {
    const person = await Person.at(chromium, await link(`${name}@example.net`));
    await person.page.getByRole('button', { name: 'Log in' }).click();
    await person.settled();
    sessions[name] = await person.context.storageState();
    await person.end();
  }
});
after(async () => {
  await restarted?.stop();
  await chromium.close();
});

/** A window of somebody's at a path of the page. */
async function at(name, path) {
  const person = await Person.at(chromium, url + path, { session: sessions[name] });
  await person.settled();
  return person;
}

test('a controller that is away is told, and its return too', async () => {
  const person = await at('erika', '/');
  const told = person.page.getByText(/does not answer|is lost/).first();
  const is = running('run', scene.fleet.dir);
  await is.kill();
  await told.waitFor();
  // It comes back with a key, as the tests below want it.
  restarted = is.again(scene.fleet.netns, '--sign-in', repository, '--key', key);
  await restarted.start();
  await told.waitFor({ state: 'detached' });
  await person.end();
});

test('a policy that the controller signs: said at all times, by an admin alone, and hosts run it', async () => {
  const notice = (person) =>
    person.page.getByRole('note').filter({ hasText: 'holds a signing key of the fleet' });
  let person = await at('erika', '/policy');
  assert.equal(await notice(person).count(), 0);
  const fleet = readFileSync(`${repository}/fleet.yaml`, 'utf8');
  await publish({ 'fleet.yaml': `${fleet}signing: controller\n` }, '--wait');
  await person.page.reload();
  for (const path of await person.pages()) {
    await person.visit(path);
    await notice(person).waitFor();
  }
  const web1 = scene.fleet.hosts[0].address;
  assert.ok(!(await reaches(scene.fleet, 9999, web1)));
  await person.visit('/policy?file=parts/50-web.yaml');
  await person.write('- allow [http, https]', '    - allow tcp/9999');
  await person.page.locator('.badge', { hasText: 'opens' }).waitFor();
  await person.page.getByLabel('What it is for').fill(hostile);
  await person.see('button', 'Save as a draft').click();
  await person.see('button', 'Sign and roll out').waitFor();

  const other = await at('max', '/policy');
  await notice(other).waitFor();
  await other.page.getByText('<script>__told').first().waitFor();
  assert.ok(await other.see('button', 'Sign and roll out').isDisabled());
  await other.end();

  await person.see('button', 'Sign and roll out').click();
  const dialog = person.page.getByRole('dialog');
  await dialog.getByText('tcp/9999').first().waitFor();
  await dialog.getByRole('button', { name: 'Sign and roll out' }).click();
  await person.page.getByText('has begun').waitFor();
  await person.see('link', /^Roll-out \d/).click();
  await person.page.locator('.badge', { hasText: 'done' }).waitFor();
  // A host that is not back from the restart yet takes it later, and the roll-out does not wait for it.
  await until('the host runs it', () => reaches(scene.fleet, 9999, web1), 3 * patience);
  await person.end();
});

test('what waits for a second person: said to whoever asked, and done by another', async () => {
  const fleet = readFileSync(`${repository}/fleet.yaml`, 'utf8');
  await publish({ 'fleet.yaml': `${fleet}approve: [ban]\n` }, '--wait');
  const asks = await at('erika', '/bans');
  const other = await at('max', '/');
  const address = '192.0.2.78';
  await asks.page.getByLabel('Address, prefix or range').fill(address);
  await asks.see('button', 'Ban', { exact: true }).click();
  const dialog = asks.page.getByRole('dialog');
  await dialog.getByLabel(/^Why/).fill(hostile);
  await dialog.getByRole('button', { name: 'Ban' }).click();
  await asks.page.getByText('waits for a second person to approve it').waitFor();
  await asks.visit('/admin');
  const mine = asks.page.getByRole('region', { name: address });
  await mine.locator('.badge', { hasText: 'waiting' }).waitFor();
  await mine.getByText('Somebody else has to approve it.').waitFor();
  assert.ok(await mine.getByRole('button', { name: 'Approve' }).isDisabled());
  await other.visit('/');
  await other.see('link', '1 request').click();
  const theirs = other.page.getByRole('region', { name: address });
  await theirs.getByText('Details').click();
  await theirs.getByText('<script>__told').first().waitFor();
  await theirs.getByRole('button', { name: 'Approve' }).click();
  const asked = other.page.getByRole('dialog');
  await asked.getByLabel(/^Why/).fill('as agreed');
  await asked.getByRole('button', { name: 'Approve' }).click();
  for (const of of [mine, theirs]) {
    await of.locator('.badge', { hasText: 'done' }).waitFor();
    await of.getByText(/Approved by user:max@example.net.*: as agreed/).waitFor();
  }
  await asks.visit('/bans');
  await asks.page
    .getByRole('row', { name: /192\.0\.2\.78/ })
    .getByText(/^on [1-5] of 5/) // not all hosts are back from the restart yet
    .waitFor();
  await asks.end();
  await other.end();
});
