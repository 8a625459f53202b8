// What the tests of the page share: the scene of "sluice-lab page", the programs that a person
// starts on it, and a browser whose pages are watched.
import assert from 'node:assert/strict';
import { spawn, execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

export const scene = JSON.parse(process.env.SLUICE_SCENE ?? '{}');

/** A bound that a busy machine keeps, in ms. */
export const patience = 30_000;

const executed = promisify(execFile);

/** Runs a program to its end and says what it printed. */
export const run = async (program, ...args) => (await executed(program, args, { maxBuffer: 1 << 26 })).stdout;

/** Runs a program where a host or a client of the scene is. */
export const inside = (of, ...command) => run('ip', 'netns', 'exec', of.netns, ...command);

/** Whether a client of the scene reaches a port, of the host unless said. */
export const reaches = (client, port, address = scene.host.address) =>
  inside(client, 'timeout', '2', 'bash', '-c', `</dev/tcp/${address}/${port}`).then(
    () => true,
    () => false,
  );

/** Runs sluice about a host of the scene. */
export const sluice = (host, ...args) =>
  run('sluice', ...args, '--netns', host.netns, '--state-dir', host.state);

/** Runs sluice-controller about the fleet of the scene. */
export const controller = (...args) => run('sluice-controller', ...args, '--dir', scene.fleet.dir);

/** Rolls out the fleet's policy with other texts of files, null is none, and says the number of the bundle. */
export async function publish(texts, ...more) {
  const { repository, key } = scene.fleet;
  for (const [name, text] of Object.entries(texts))
    if (text === null) rmSync(join(repository, name));
    else writeFileSync(join(repository, name), text);
  await controller('sign', '--key', key, '--repository', repository);
  const out = await controller('publish', '--repository', repository, ...more);
  return Number(/bundle (\d+)/.exec(out)[1]);
}

/** Waits until something is so, and says it. */
export async function until(what, is, bound = patience) {
  let last;
  for (const end = Date.now() + bound; Date.now() < end; await new Promise((done) => setTimeout(done, 100))) {
    try {
      const out = await is();
      if (out) return out;
      last = out;
    } catch (error) {
      last = error;
    }
  }
  throw new Error(`it never came that ${what}: ${last}`);
}

/** A program that runs until it is stopped. */
class Program {
  constructor(...command) {
    this.command = command;
  }
  async start(line) {
    this.child = spawn(this.command[0], this.command.slice(1), { stdio: ['ignore', 'pipe', 'inherit'] });
    this.ended = once(this.child, 'exit');
    let out = '';
    this.child.stdout.setEncoding('utf8').on('data', (text) => (out += text));
    if (line) return until(`${this.command.join(' ')} prints ${line}`, () => line.exec(out)?.[0]);
  }
  async stop() {
    this.child?.kill('SIGKILL'); // none: it was not started
    await this.ended;
  }
}

/** A web server on the loopback of a namespace, which gives a text that a test changes. */
export class ListServer extends Program {
  constructor(of) {
    const file = join(mkdtempSync(join(tmpdir(), 'list-')), 'list.txt');
    const serve = `require('http').createServer((_, to) => to.end(require('fs').readFileSync('${file}')))
      .listen(8099, '127.0.0.1', () => console.log('serves'))`;
    super('ip', 'netns', 'exec', of.netns, process.execPath, '-e', serve);
    this.file = file;
    this.url = 'http://127.0.0.1:8099/list.txt';
  }
  serve(...lines) {
    writeFileSync(this.file, lines.join('\n') + '\n');
  }
  start() {
    return super.start(/serves/);
  }
}

/** A server of TCP in a namespace that says what it is told. */
export class EchoServer extends Program {
  constructor(of, port) {
    const serve = `require('net').createServer((c) => c.on('error', () => {}).pipe(c))
      .listen(${port}, () => console.log('serves'))`;
    super('ip', 'netns', 'exec', of.netns, process.execPath, '-e', serve);
  }
  start() {
    return super.start(/serves/);
  }
}

/** A connection from a namespace that stays until it is stopped. */
export class Connection extends Program {
  constructor(of, host, port, localAddress) {
    const to = JSON.stringify({ host, port, localAddress });
    // What the server says back shows that the host has let it in.
    const hold = `const c = require('net').connect(${to}, () => c.write('hello'));
      c.on('data', () => console.log('connected')).on('error', () => {}); setInterval(() => {}, 1e6)`;
    super('ip', 'netns', 'exec', of.netns, process.execPath, '-e', hold);
  }
  start() {
    return super.start(/connected/);
  }
}

/** The page of the host that is in no fleet, as its owner starts it. */
export class Local extends Program {
  constructor() {
    // At the usual socket, which no ssh forwards: there the page saves files.
    const usual =
      'mount -t tmpfs run /run && mkdir /run/sluice && ln -s "$0" /run/sluice/agent.sock && exec "$@"';
    const page = ['sluice-controller', 'local', '--netns', scene.host.netns];
    super('unshare', '--mount', 'sh', '-c', usual, scene.host.socket, ...page);
  }
  /** Starts it, at the port that it had before, and says the address that opens the page once. */
  async start() {
    if (this.url && !this.command.includes('--port')) this.command.push('--port', this.url.port);
    const address = await super.start(/^http:.*$/m);
    this.url = new URL(address);
    return address;
  }
}

/** The address that logs a person in at the controller, once, with a role of its own where one is given. */
export const link = async (who = 'erika@example.net', role) =>
  (await controller('access', 'link', who, ...(role ? ['--role', role] : []))).trim();

/** A program of the scene by its arguments; one that was killed can be started again. */
export function running(...words) {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    let args;
    try {
      args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    } catch {
      continue; // it has ended
    }
    if (!words.every((word) => args.includes(word))) continue;
    return {
      signal: (name) => process.kill(Number(pid), name),
      kill: async () => {
        process.kill(Number(pid), 'SIGKILL');
        await until(
          `${args.join(' ')} ends`,
          () =>
            !readdirSync('/proc').includes(pid) ||
            /^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')),
        );
      },
      /** The same program, with more arguments. */
      again: (netns, ...more) =>
        new Program(...(netns ? ['ip', 'netns', 'exec', netns] : []), ...args, ...more),
    };
  }
  throw new Error(`no process has the arguments ${words.join(' ')}`);
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Chromium. */
export const browser = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
  });

/** What was wrong with a page, beside what a test looks for. */
export class Person {
  clicks = 0;
  wrong = [];

  /** Opens a window; the address logs in where there is no session yet. */
  static async at(chromium, address, { width = 1280, height = 800, dark = false, session } = {}) {
    const person = new Person();
    person.context = await chromium.newContext({
      viewport: { width, height },
      colorScheme: dark ? 'dark' : 'light',
      reducedMotion: 'reduce',
      ignoreHTTPSErrors: true, // the certificate is by the fleet's own CA
      storageState: session,
    });
    await person.context.exposeBinding('__told', (_, kind, text) => {
      if (kind === 'click') person.clicks++;
      else person.wrong.push(`${kind}: ${text}`);
    });
    await person.context.addInitScript(() => {
      addEventListener('click', (event) => event.isTrusted && globalThis.__told('click', ''), true);
      document.addEventListener('securitypolicyviolation', (event) =>
        globalThis.__told(
          'CSP',
          `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`,
        ),
      );
    });
    person.page = await person.context.newPage();
    person.page.setDefaultTimeout(patience);
    person.page.on('pageerror', (error) => person.wrong.push(`error: ${error.stack ?? error}`));
    person.page.on('dialog', (dialog) => {
      if (dialog.type() === 'beforeunload') return void dialog.accept(); // a reload means to leave
      person.wrong.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    if (address) await person.page.goto(address);
    return person;
  }

  /** Goes to an address of the page, which asks until it has what it shows. */
  async visit(path) {
    await this.page.goto(new URL(path, this.page.url()).href);
    await this.settled();
  }

  /** Waits for the page's heading and until nothing of it says that it is asking. */
  async settled() {
    await this.page.locator('main h1').first().waitFor();
    await this.page.waitForFunction(() => !document.querySelector('main [aria-busy="true"]'));
  }

  /** The links of the head of the page. */
  async pages() {
    await this.page.locator('nav a').first().waitFor();
    return this.page.locator('nav a').evaluateAll((all) => all.map((a) => a.getAttribute('href')));
  }

  /** A control by its role and name. */
  see(role, name, options = {}) {
    return this.page.getByRole(role, { name, ...options }).first();
  }

  /** Types a line behind the one that has a text, in the editor. */
  async write(after, line) {
    await this.page.locator('.cm-line', { hasText: after }).first().click();
    await this.page.keyboard.press('End');
    await this.page.keyboard.insertText(`\n${line}`);
  }

  /** What axe finds against WCAG 2.2 AA. */
  async axe() {
    await this.page.evaluate(axeSource);
    const { violations } = await this.page.evaluate(() =>
      globalThis.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'],
        resultTypes: ['violations'],
      }),
    );
    return violations.flatMap((v) =>
      v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)}: ${n.failureSummary}`),
    );
  }

  /** Ends, and fails where something went wrong that nobody looked for. */
  async end() {
    await this.context.close();
    assert.deepEqual(this.wrong, []);
  }
}
