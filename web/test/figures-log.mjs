// What a minute of live log costs a browser: scripts/figures-page.
import { readFileSync, writeFileSync } from 'node:fs';
import { browser, Local, Person, scene, sluice } from './lib.mjs';

// 25 lines: each logs at most 50 packets a second.
const file = scene.policy.replace(/[^/]*$/, 'flood.yaml');
const lines = Array.from({ length: 25 }, (_, n) => `    - drop tcp/${9001 + n} log "flood"\n`);
writeFileSync(file, `version: 1\nlog: netlink\ninput:\n  default: drop\n  rules:\n${lines.join('')}`);
await sluice(scene.host, 'apply', file, '--no-confirm');

const chromium = await browser();
const local = new Local();
let session;
for (const [what, path] of [
  ['an idle page', '/lists'],
  ['the log', '/log'],
]) {
  const person = session
    ? await Person.at(chromium, local.url.origin + path, { session })
    : await Person.at(chromium, await local.start());
  session ??= await person.context.storageState();
  await person.visit(path);
  await person.page.evaluate(() => {
    globalThis.tasks = [];
    new PerformanceObserver((list) =>
      globalThis.tasks.push(...list.getEntries().map((e) => e.duration)),
    ).observe({
      type: 'longtask',
    });
  });
  await person.page.waitForTimeout(65_000);
  const tasks = await person.page.evaluate(() => globalThis.tasks);
  const logged = (await sluice(scene.host, 'log', '--since', '1m', '--json')).split('\n').length / 60;
  const rows = await person.page.locator('[data-row]').count();
  const { processInfo } = await (await chromium.newBrowserCDPSession()).send('SystemInfo.getProcessInfo');
  const memory = processInfo
    .filter((p) => p.type === 'renderer')
    .map((p) =>
      Math.round(Number(/^Pss: +(\d+)/m.exec(readFileSync(`/proc/${p.id}/smaps_rollup`, 'utf8'))[1]) / 1024),
    );
  console.log(
    `${what}, a minute: ${logged.toFixed(0)} rows a second are logged, ${tasks.length} long tasks (${Math.round(Math.max(0, ...tasks))} ms at most), ` +
      `${rows} rows in the document, renderers ${memory.join(', ')} MB`,
  );
  await person.end();
}
await chromium.close();
await local.stop();
