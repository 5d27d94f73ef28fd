// What a stranger must see within three seconds: is anything wrong, and what? Each state by its sentence and its picture.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { ALL_SCREENS, closeBrowser, light, nothingWrong, onScreens, visitor } from './support/browser.js';
import { Place, eventually, given, stopHosts } from './support/program.js';

after(async () => {
  await closeBrowser();
  await stopHosts();
});

const placed = (number) => ({ event_type: 'OrderPlaced', aggregate_type: 'Order', aggregate_id: `${number}`, payload: { order_id: number, total: 9.5 } });
/** Without a total: the mailer gives it up at once. */
const unreadable = (number) => ({ event_type: 'OrderPaid', aggregate_type: 'Order', aggregate_id: `${number}`, payload: { order_id: number } });

/** The status line, once it says this. */
async function says(host, pattern, path = '') {
  const { page, close } = await visitor();
  let last = '';
  await eventually(`the status line says ${pattern}`, async () => {
    await page.goto(host.at(path));
    last = await page.locator('#status').innerText();
    return pattern.test(last);
  }).catch((error) => assert.fail(`${error.message}, not: ${last}`));
  await close();
  return last;
}

async function mailer(name, config) {
  const place = new Place(name, { config });
  place.plugin('order-mailer');
  return { place, host: await place.host() };
}

test('an empty database is no error: all is well, and the first step is told', async () => {
  const { host } = await mailer('empty');
  await says(host, /All well/);
  await onScreens('state-empty', host.at(), ALL_SCREENS);
  await onScreens('state-empty-events', host.at('events'));
  await onScreens('state-empty-dead', host.at('dead'));
  const { page, close } = await visitor();
  await page.goto(host.at('events'));
  assert.match(await page.locator('main').innerText(), /No events yet\. Write one: outbox event emit/);
  await close();
});

test('all is well while events flow, and the charts say how fast', async () => {
  const { place, host } = await mailer('well');
  await place.emit(Array.from({ length: 2_000 }, (_, number) => placed(number)));
  await place.wait('done', 2_000);
  await says(host, /All well · 1 host/);
  await eventually('the charts have numbers', async () => {
    const text = await (await fetch(host.at())).text();
    return text.includes('<svg') && /p50 <span class="figure">\d/.test(text);
  });
  await onScreens('state-well', host.at(), ALL_SCREENS);
});

test('17 dead events are a fault that names their route and what went wrong', async () => {
  const { place, host } = await mailer('dead');
  await place.emit([...Array.from({ length: 17 }, (_, number) => unreadable(number)), placed(1)]);
  await place.wait('dead', 17);
  const said = await says(host, /17 events are dead/);
  assert.match(said, /all of Order\/OrderPaid, the first since .*: .*`total` is missing.*Show dead events/s);
  await onScreens('state-17-dead', host.at(), ALL_SCREENS);
  await onScreens('state-17-dead-list', host.at('dead'));
});

test('no host is alive: nothing is delivered, and how to start one is told', async () => {
  const place = new Place('no-host', { config: 'mode = "writer_only"\n' });
  const host = await place.host();
  await place.emit(Array.from({ length: 23 }, (_, number) => placed(number)));
  await says(host, /Nothing is being delivered: 23 events are waiting, and no host is alive/);
  await onScreens('state-no-host', host.at(), ALL_SCREENS);
  await onScreens('state-no-host-hosts', host.at('hosts'));
});

test('a plugin that does not load is told with its whole message, and what serves instead', async () => {
  const { place, host } = await mailer('failed');
  await place.emit([placed(1)]);
  await place.wait('done', 1);
  writeFileSync(join(place.path, 'plugins', 'order-mailer.wasm'), 'this is no component');
  place.plugin('order-webhook');
  await says(host, /Plugin order-webhook failed to load/);
  await says(host, /The new file of plugin order-mailer failed to load on .*; version .* is still serving/);
  await onScreens('state-failed-plugin', host.at(), ALL_SCREENS);
  await onScreens('state-failed-plugin-plugins', host.at('plugins'));
  const { page, close } = await visitor();
  await page.goto(host.at('plugins'));
  const told = await (await fetch(host.at('v1/plugins'))).json();
  const errors = await page.locator('pre.error').allInnerTexts();
  for (const { name, error } of told) assert.ok(errors.some((shown) => shown === error), `${name}: ${error} among ${errors}`);
  assert.match(await page.locator('section.plugin', { hasText: 'serving an older version' }).innerText(), /failed to load.*loaded/s);
  await close();
});

test('10,000 dead events are counted, grouped, and no page grows with them', async () => {
  const { place, host } = await mailer('many');
  await place.emit(Array.from({ length: 10_000 }, (_, number) => unreadable(number)));
  await place.wait('dead', 10_000);
  await says(host, /10.000 events are dead/u);
  await onScreens('state-10000-dead', host.at(), ALL_SCREENS);
  await onScreens('state-10000-dead-list', host.at('dead'));
  await onScreens('state-10000-dead-replay', host.at('dead/replay'));
  for (const path of ['', 'events', 'dead', 'dead/replay']) await light(`${path || 'overview'} with 10,000 dead events`, host.at(path));
});

test('an event after twelve attempts says how often, why, and what can be done', async () => {
  const place = new Place('twelve', { config: '[dispatcher]\nmax_attempts = 12\nrecord = "all"\n' });
  place.plugin('trouble', 'retry = { policy = "fixed", base = "5ms" }\n');
  const host = await place.host();
  await place.emit([{ event_type: 'Retryable', aggregate_type: 'Trouble', aggregate_id: 'one', payload: {} }]);
  await place.wait('dead', 1);
  const [{ event_id }] = JSON.parse(await place.run(['event', 'list', '--output', 'json']));
  await says(host, /1 event of Trouble\/Retryable has been dead/);
  await onScreens('state-twelve-attempts', host.at(`events/${event_id}`), ALL_SCREENS);
  const { page, close } = await visitor();
  await page.goto(host.at(`events/${event_id}`));
  const text = await page.locator('main').innerText();
  assert.match(text, /It was given up .*, after 12 failed attempts: /);
  assert.match(text, /Attempt 12 \(the event was given up\): .* fuel, .*; fuel:\s+\d+ % of the limit/s);
  await close();
});

/** Stands between a host and its database. */
class Wire {
  static async to(url) {
    const wire = new Wire();
    const server = new URL(url);
    const port = Number(server.port);
    wire.open = new Set();
    wire.server = createServer((client) => {
      if (wire.cut) {
        client.destroy();
        return;
      }
      const database = connect(port, server.hostname);
      for (const [one, other] of [[client, database], [database, client]]) {
        wire.open.add(one);
        one.pipe(other);
        one.on('error', () => other.destroy());
        one.on('close', () => (wire.open.delete(one), other.destroy()));
      }
    });
    await new Promise((done) => wire.server.listen(0, '127.0.0.1', done));
    server.port = wire.server.address().port;
    wire.url = server.href;
    return wire;
  }

  break() {
    this.cut = true;
    for (const end of this.open) end.destroy();
  }

  mend() {
    this.cut = false;
  }

  close() {
    this.break();
    this.server.close();
  }
}

test('a database that goes while a page is open is told, what is shown is marked as old, and both end with it', async (t) => {
  const wire = await Wire.to(given('OUTBOX_TEST_OWN_POSTGRES_URL'));
  t.after(() => wire.close());
  const place = new Place('gone', { url: wire.url });
  place.plugin('order-mailer');
  const host = await place.host();
  await place.emit([...Array.from({ length: 3 }, (_, number) => unreadable(number)), placed(1)]);
  await place.wait('dead', 3);
  await says(host, /3 events are dead/);
  const visit = await visitor();
  const { page } = visit;
  const list = await visitor();
  await page.goto(host.at());
  await list.page.goto(host.at('events'));
  const ink = () => page.evaluate(() => getComputedStyle(document.querySelector('main')).color);
  const before = await ink();

  wire.break();

  const gone = /The database does not answer; what you see is from [\d:]+ UTC\./;
  for (const open of [page, list.page]) await open.locator('#status', { hasText: gone }).waitFor();
  assert.notEqual(await ink(), before, 'what is old looks so');
  assert.match(await page.locator('#status').innerText(), /3 events are dead/);
  assert.equal(await list.page.locator('table.rows tbody tr').count(), 4, 'what was known is still there');
  await onScreens('state-database-gone', host.at(), ALL_SCREENS);

  wire.mend();

  for (const open of [page, list.page]) await open.locator('#status', { hasText: /The database does not answer/ }).waitFor({ state: 'detached' });
  assert.equal(await ink(), before);
  for (const open of [visit, list]) {
    nothingWrong(open, 'while the database was away');
    await open.close();
  }
});

test('a host that goes while a page is open is told on the page', async () => {
  const { host } = await mailer('leaves');
  const { page, close } = await visitor();
  await page.goto(host.at());
  await page.locator('#status', { hasText: 'All well' }).waitFor();
  await host.stop();
  await page.locator('#stale', { hasText: 'This page is not up to date: the host does not answer.' }).waitFor();
  await close();
});
