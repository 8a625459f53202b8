// What holds for every page, of a host and of a fleet.
import assert from 'node:assert/strict';
import { Person } from './lib.mjs';

/** Text that runs where it is taken for anything but text, as far as a log's prefix may have it. */
export const hostilePrefix = `<img src=x onerror=__told('ran','img')><script>__told('ran','script')</script>`;
/** The same, where everything may be written. */
export const hostile = `${hostilePrefix}" onfocus=__told('ran','attribute') autofocus x="`;
/** A rule that logs what comes to telnet, with a comment. */
export const hostileRule = `    # ${hostile}
    - drop telnet log "${hostilePrefix}"`;

/** Looks at each page light and dark, narrow and wide. */
export async function everybodyCanRead(t, chromium, session, url, pages) {
  const person = await Person.at(chromium, url, { session });
  for (const path of pages)
    await t.test(path, async () => {
      await person.visit(path);
      const wrong = [];
      for (const width of [1280, 360])
        for (const colorScheme of ['light', 'dark']) {
          await person.page.setViewportSize({ width, height: 800 });
          await person.page.emulateMedia({ colorScheme });
          await person.settled();
          const wide = await person.page.evaluate(() => document.documentElement.scrollWidth);
          if (wide > width) wrong.push(`${width} px: the page is ${wide} px wide`);
          for (const found of await person.axe()) wrong.push(`${width} px, ${colorScheme}: ${found}`);
        }
      assert.equal(wrong.join('\n'), '');
    });
  await person.end();
}

/** Goes through each page by the tab key alone. */
export async function keysReachAll(t, chromium, session, url, pages) {
  const person = await Person.at(chromium, url, { session });
  for (const path of pages)
    await t.test(path, async () => {
      await person.visit(path);
      assert.equal((await unreached(person.page)).join('\n'), '');
    });
  await person.end();
}

async function unreached(page) {
  await page.evaluate(() => {
    document.activeElement?.blur();
    globalThis.__been = new WeakSet();
    // A list that is renewed while one goes through it has new elements: names tell them apart.
    globalThis.__name = (e) =>
      `${e.tagName.toLowerCase()} ${e.getAttribute('aria-label') ?? ''} ${(e.innerText ?? e.textContent ?? '').trim().slice(0, 60)} ${e.getAttribute('href') ?? e.getAttribute('name') ?? ''}`;
  });
  const reached = new Set();
  const unseen = [];
  for (let n = 0, again = 0; n < 1500 && again < 5; n++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) return;
      // A shape of a map shows it by its own line.
      const style = getComputedStyle(e);
      const line = (of) => of && getComputedStyle(of.querySelector('path') ?? of).strokeWidth;
      const out = {
        name: globalThis.__name(e),
        seen:
          style.outlineStyle !== 'none' ||
          style.boxShadow !== 'none' ||
          !!e.closest('.cm-focused') ||
          (e instanceof SVGElement && line(e) !== line(e.previousElementSibling ?? e.nextElementSibling)),
        again: globalThis.__been.has(e),
        editor: !!e.closest('.cm-editor'),
      };
      globalThis.__been.add(e);
      return out;
    });
    if (!at) continue; // the browser's own controls
    again = at.again ? again + 1 : 0;
    reached.add(at.name);
    if (!at.seen) unseen.push(`nothing shows the focus on ${at.name}`);
    if (at.editor) await page.keyboard.press('Escape'); // it takes the tab key until then
  }
  const all = await page.evaluate(() => {
    const own =
      'a[href], button, input, select, textarea, summary, [role=button], [role=link], [role=checkbox], [role=tab], [role=option], [contenteditable=true]';
    // Of these one is reached by the tab key, and the others by the arrows from there.
    const together =
      '[role=grid], [role=listbox], [role=tablist], [role=menu], [role=radiogroup], [role=tree], [role=treegrid], svg[role=group], .cm-editor';
    const out = [];
    for (const e of document.querySelectorAll(own)) {
      if (
        e.disabled ||
        e.closest('[inert], [hidden]') ||
        !e.checkVisibility({ visibilityProperty: true, opacityProperty: true })
      )
        continue;
      if (e.type === 'radio' || (e.tabIndex < 0 && e.closest(together))) continue;
      out.push(globalThis.__name(e));
    }
    // What looks as if it could be clicked can be.
    for (const e of document.querySelectorAll('main *'))
      if (getComputedStyle(e).cursor === 'pointer' && !e.closest(`${own}, label, [tabindex], ${together}`))
        out.push(`clickable and no control: ${globalThis.__name(e)}`);
    return out;
  });
  return [...new Set([...all.filter((name) => !reached.has(name)), ...unseen])];
}

/** Looks for what hostile text has become on each page, and that it stands on those that show it. */
export async function hostileIsText(t, chromium, session, url, pages, shown) {
  const person = await Person.at(chromium, url, { session });
  for (const path of new Set([...pages, ...shown]))
    await t.test(path, async () => {
      await person.visit(path);
      if (shown.includes(path)) await person.page.getByText('<script>__told').first().waitFor();
      assert.equal(
        await person.page.locator('img[src="x"], main script, [onfocus], a[href^="javascript:" i]').count(),
        0,
      );
    });
  await person.end();
}
