// Pictures of each page, light and dark, narrow and wide, into a folder: "make pictures".
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { argv } from 'node:process';
import { browser, inside, link, Local, Person, scene, sluice } from './lib.mjs';

const [out] = argv.slice(2);
mkdirSync(out, { recursive: true });
for (const old of readdirSync(out).filter((name) => name.endsWith('.webp'))) rmSync(`${out}/${old}`);
const chromium = await browser();
const sizes = [
  { width: 1280, height: 800 },
  { width: 360, height: 720 },
];

/** A PNG as a WebP, which is a third as large; Chromium has the encoder. */
const painter = await (await chromium.newContext()).newPage();
const webp = async (png) => {
  const url = await painter.evaluate(async (base64) => {
    const image = new Image();
    image.src = `data:image/png;base64,${base64}`;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext('2d').drawImage(image, 0, 0);
    const bytes = new Uint8Array(
      await (await canvas.convertToBlob({ type: 'image/webp', quality: 0.72 })).arrayBuffer(),
    );
    return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ''));
  }, png.toString('base64'));
  return Buffer.from(url, 'base64');
};

/** Takes a picture of each of the pages, each of which has a name, or one that its path gives. */
async function take(kind, session, url, pages) {
  for (const path of pages) {
    const person = await Person.at(chromium, url, { session });
    await person.visit(path);
    for (const { width, height } of sizes)
      for (const colorScheme of ['light', 'dark']) {
        await person.page.setViewportSize({ width, height });
        await person.page.emulateMedia({ colorScheme });
        await person.settled();
        await person.page.waitForTimeout(1500); // for packets to come
        const name =
          path === '/'
            ? 'overview'
            : path
                .slice(1)
                .replace(/\?kind=.*/, '')
                .replaceAll(/[^a-z0-9]+/g, '-');
        const answer = person.page.getByRole('region', { name: 'Answer' });
        if (await answer.count()) await answer.evaluate((found) => found.scrollIntoView({ block: 'end' }));
        const parts = [kind, name, width < 400 ? 'narrow' : '', colorScheme === 'dark' ? 'dark' : ''];
        writeFileSync(
          `${out}/${parts.filter(Boolean).join('-')}.webp`,
          await webp(await person.page.screenshot()),
        );
      }
    await person.end();
  }
}

/** The pages of a window's navigation. */
async function session(address) {
  const person = await Person.at(chromium, address);
  const button = person.page.getByRole('button', { name: 'Log in' });
  if (address.includes('/login')) await button.click();
  const found = { pages: await person.pages(), state: await person.context.storageState() };
  await person.end();
  return found;
}

/** The same pages, of which the one for questions has an answer. */
const asked = (pages) =>
  pages.map((path) => (path === '/ask' ? '/ask?kind=query&service=ssh&verdict=accept' : path));

const local = new Local();
const host = await session(await local.start());
await sluice(scene.host, 'ban', '198.51.100.66', '--for', '2h', '-m', 'tries passwords');
await sluice(
  scene.host,
  'allow',
  scene.clients.find((c) => c.name === 'Japan').ipv4,
  'web',
  '--for',
  '2h',
  '-m',
  'ticket 4711',
);
const web3 = scene.fleet.hosts.find((h) => h.name === 'web-3');
await inside(web3, 'nft', 'insert', 'rule', 'inet', 'sluice', 'input', 'tcp', 'dport', '9999', 'accept');
await new Promise((done) => setTimeout(done, 40_000)); // for packets to come
await take('host', host.state, local.url.origin, asked(host.pages));
await local.stop();
const fleet = await session(await link());
await take('fleet', fleet.state, scene.fleet.url, [
  ...asked(fleet.pages),
  '/hosts/web-3',
  '/rollouts/1',
  '/admin?tab=audit',
]);
await chromium.close();
