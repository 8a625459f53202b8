// What a fleet of 10,000 rows costs a browser: scripts/figures-page.
import { browser, controller, link, Person, scene, until } from './lib.mjs';

const rows = Number(process.argv[2] ?? 10_000);
const chromium = await browser();
await until(
  `the controller has ${rows} hosts`,
  async () => JSON.parse(await controller('hosts', '--json').catch((e) => e.stdout)).hosts.length >= rows,
);
let person = await Person.at(chromium, await link('erika@example.net', 'admin'));
await person.page.getByRole('button', { name: 'Log in' }).click();
await person.pages();
const session = await person.context.storageState();
await person.end();

for (const path of ['/', '/hosts']) {
  person = await Person.at(chromium, '', { session });
  const wire = await person.context.newCDPSession(person.page);
  await wire.send('Network.enable');
  const asked = [];
  let bytes = 0;
  const seen = new Map();
  wire.on('Network.requestWillBeSent', (e) => asked.push(new URL(e.request.url).pathname));
  wire.on('Network.dataReceived', (e) =>
    seen.set(e.requestId, (seen.get(e.requestId) ?? 0) + e.encodedDataLength),
  );
  wire.on('Network.loadingFinished', (e) => seen.set(e.requestId, e.encodedDataLength));
  const from = Date.now();
  await person.page.goto(scene.fleet.url + path);
  await person.page
    .getByText(`${rows.toLocaleString('en')} hosts`, { exact: true })
    .first()
    .waitFor();
  for (const n of seen.values()) bytes += n;
  console.log(
    `${path}: first useful picture of ${rows} hosts: ${asked.length} requests, ${Math.round(bytes / 1000)} KB, ${Date.now() - from} ms: ${asked.join(' ')}`,
  );
  if (path === '/hosts') {
    const times = [];
    for (const text of ['absent-0', 'r7', 'absent-0123', '', '10.1.4', 'simulated', '']) {
      times.push(
        await person.page.evaluate(async (text) => {
          const input = document.querySelector('main input[type=search]');
          const from = performance.now();
          input.value = text;
          input.dispatchEvent(new InputEvent('input', { bubbles: true }));
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          return performance.now() - from;
        }, text),
      );
    }
    console.log(
      `filter over ${rows} hosts, until it is drawn: ${times.map((t) => Math.round(t)).join(', ')} ms`,
    );
    console.log(`rows in the document: ${await person.page.locator('main [role=row]').count()}`);
  }
  await person.end();
}
await chromium.close();
