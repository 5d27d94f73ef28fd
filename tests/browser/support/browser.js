// A browser that notes everything that must not happen: dialogs, errors, refused scripts and styles.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { PATIENCE, given } from './program.js';

const installed = createRequire(join(given('OUTBOX_TEST_BROWSER'), 'package.json'));
const { chromium } = installed('playwright-core');
const AXE = readFileSync(installed.resolve('axe-core/axe.min.js'), 'utf8');

/** The widths of a phone, a tablet and a laptop. */
export const WIDTHS = [390, 820, 1440];
export const SCHEMES = ['light', 'dark'];
/** The most bytes of a page in all. */
export const MOST_BYTES = 150_000;

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

let running;

/** The browser of this file of tests, with a profile of its own. */
export async function browser() {
  if (!running) {
    const profile = mkdtempSync(join(given('OUTBOX_TEST_DIRECTORY'), 'profile-'));
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: given('OUTBOX_TEST_CHROMIUM'),
      headless: true,
      args: FLAGS,
    });
    running = { context, profile, browser: context.browser() };
  }
  return running;
}

export async function closeBrowser() {
  if (!running) return;
  await running.context.close();
  rmSync(running.profile, { recursive: true, force: true });
  running = undefined;
}

/** A page in the browser, and what went wrong in it. */
export async function visitor({ script = true, scheme = 'light', width = 1440, permissions = [] } = {}) {
  const { context: shared } = await browser();
  const context = await shared.browser().newContext({
    javaScriptEnabled: script,
    colorScheme: scheme,
    viewport: { width, height: 900 },
    permissions,
    reducedMotion: 'reduce',
  });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const wrong = [];
  page.on('dialog', (dialog) => {
    wrong.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss().catch(() => {});
  });
  page.on('pageerror', (error) => wrong.push(`an error of a script: ${error.message}`));
  page.on('console', (message) => {
    // An answer that is no 200 is told to the console too; what it says is looked at by the tests.
    const isAnswer = message.text().startsWith('Failed to load resource');
    if (['error', 'warning'].includes(message.type()) && !isAnswer) wrong.push(`the console: ${message.text()}`);
  });
  return { page, wrong, close: () => context.close() };
}

/** Nothing that must not happen has happened. */
export function nothingWrong(visitor, where) {
  assert.deepEqual(visitor.wrong, [], where);
}

/** The page is not wider than the window. */
export async function fits(page, where) {
  const { scroll, client } = await page.evaluate(() => ({
    scroll: document.documentElement.scrollWidth,
    client: document.documentElement.clientWidth,
  }));
  if (scroll <= client) return;
  const wide = await page.evaluate(() => {
    const right = document.documentElement.clientWidth;
    const all = [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > right + 1);
    return all.slice(0, 5).map((one) => one.outerHTML.slice(0, 120));
  });
  assert.fail(`${where} scrolls sideways: ${scroll} > ${client}; beyond its edge: ${wide.join(' … ')}`);
}

/** The page has no fault that axe finds. */
export async function accessible(page, where) {
  // Through the debugger: the policy of the pages lets no other script in, and axe is none of theirs.
  await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document));
  assert.ok(passes.length > 10, `${where}: axe looked`);
  const told = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html).join(' … ')}`);
  assert.deepEqual(told, [], where);
}

/** Keeps a picture of the whole page in the test results, if `OUTBOX_TEST_PICTURES` is set. */
export async function picture(page, name) {
  if (!process.env.OUTBOX_TEST_PICTURES) return;
  const folder = join(given('OUTBOX_TEST_BROWSER'), 'screenshots');
  mkdirSync(folder, { recursive: true });
  // Without what would put a style sheet into the page, which its policy refuses.
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true, caret: 'initial', animations: 'allow' });
}

/** Every width in both schemes; for what is judged by its looks. */
export const ALL_SCREENS = WIDTHS.flatMap((width) => SCHEMES.map((scheme) => ({ width, scheme })));
/** Every width, and both schemes. */
export const SCREENS = [
  { width: 390, scheme: 'dark' },
  { width: 820, scheme: 'light' },
  { width: 1440, scheme: 'light' },
];

/** Looks at one address on these screens: it fits, and axe finds nothing in either scheme. */
export async function onScreens(name, address, screens = SCREENS, ready = async () => {}) {
  for (const scheme of SCHEMES) {
    const visit = await visitor({ scheme });
    for (const { width } of screens.filter((screen) => screen.scheme === scheme)) {
      const where = `${name} at ${width} px, ${scheme}`;
      await visit.page.setViewportSize({ width, height: 900 });
      await visit.page.goto(address);
      await ready(visit.page);
      await fits(visit.page, where);
      await picture(visit.page, `${name}-${width}-${scheme}`);
      if ((scheme === 'light') === (width === 1440)) await accessible(visit.page, where);
      nothingWrong(visit, where);
    }
    await visit.close();
  }
}

/** How many bytes a page loads in all, and whether it can be read when nothing but its document is loaded. */
export async function light(name, address) {
  const visit = await visitor();
  const session = await visit.page.context().newCDPSession(visit.page);
  await session.send('Network.enable');
  let bytes = 0;
  session.on('Network.loadingFinished', ({ encodedDataLength }) => (bytes += encodedDataLength));
  await visit.page.goto(address, { waitUntil: 'load' });
  assert.ok(bytes > 1_000 && bytes <= MOST_BYTES, `${name} loads ${bytes} bytes`);
  await visit.close();

  const alone = await visitor({ script: false });
  await alone.page.route('**/*', (route) => (route.request().resourceType() === 'document' ? route.continue() : route.abort()));
  await alone.page.goto(address);
  const { heading, font } = await alone.page.evaluate(() => ({
    heading: document.querySelector('h1')?.textContent ?? '',
    font: getComputedStyle(document.querySelector('main')).fontFamily,
  }));
  assert.ok(heading.length > 0 && font.startsWith('system-ui'), `${name} can be read after one round trip: ${heading}, ${font}`);
  await alone.close();
  return bytes;
}
