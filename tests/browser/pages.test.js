// Every page, on every screen, in a house where everything happens at once.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { closeBrowser, light, nothingWrong, onScreens, visitor } from './support/browser.js';
import { Place, eventually, stopHosts } from './support/program.js';

const CONFIG = `
mode = "ordered_by_aggregate"
[dispatcher]
unroutable = "park"
record = "all"
`;

let host;
let dead;

before(async () => {
  const place = new Place('pages', { config: CONFIG });
  place.plugin('order-mailer');
  place.plugin('trouble', 'retry = { policy = "fixed", base = "1h", max_attempts = 5 }\n');
  place.plugin('effects');
  host = await place.host();
  const order = (event_type, number, payload) => ({ event_type, aggregate_type: 'Order', aggregate_id: `${number}`, payload });
  const good = (number) => ({ order_id: number, total: 9.5, customer: 'ada@example.com' });
  await place.emit([
    ...Array.from({ length: 30 }, (_, number) => order('OrderPlaced', number, good(number))),
    ...Array.from({ length: 17 }, (_, number) => ({
      ...order('OrderPaid', 100 + number, { order_id: number }),
      headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', channel: 'web' },
    })),
    { event_type: 'Retryable', aggregate_type: 'Trouble', aggregate_id: 'one', payload: {} },
    { event_type: 'Sent', aggregate_type: 'Invoice', aggregate_id: '2026-11', payload: { number: '2026-11' } },
    { ...order('OrderPlaced', 900, good(900)), deliver_after: '6h' },
  ]);
  await place.wait('dead', 17);
  await place.wait('done', 30);
  await place.wait('retry', 1);
  await place.emit([order('OrderPlaced', 100, good(100)), order('OrderPlaced', 101, good(101))]);
  await place.wait('blocked', 2);
  await place.run(['route', 'pause', 'Order/*', '--reason', 'the warehouse moves', '--yes']);
  // The host takes note of a pause within two seconds.
  await eventually('an event is held by the pause', async () => {
    await place.emit([order('OrderPlaced', 500, good(500))]);
    await eventually('it is delivered or held', async () => {
      const { new: waiting, parked } = await place.stats();
      return waiting === 1 || parked === 2;
    });
    return (await place.stats()).parked === 2;
  });
  dead = JSON.parse(await place.run(['event', 'list', '--status', 'dead', '--limit', '1', '--output', 'json']))[0].event_id;
  await eventually('the overview knows of all that', async () => (await (await fetch(host.at())).text()).includes('17 events are dead'));
});

after(async () => {
  await closeBrowser();
  await stopHosts();
});

const PAGES = {
  overview: () => '',
  events: () => 'events',
  'events-claimed': () => 'events?status=claimed',
  'events-delayed': () => 'events?status=delayed&since=1h',
  'events-unreadable-filter': () => 'events?header=no-pair&since=yesterday',
  event: () => `events/${dead}`,
  'event-payload': () => `events/${dead}?payload=show`,
  'event-unknown': () => 'events/01ARZ3NDEKTSV4RRFFQ69G5FAV',
  dead: () => 'dead',
  'dead-narrow': () => 'dead?event_type=OrderPaid&error=missing',
  replay: () => 'dead/replay?event_type=OrderPaid',
  discard: () => 'dead/discard?event_type=OrderPaid',
  routes: () => 'routes',
  pause: () => 'routes/pause?aggregate_type=Invoice&event_type=Sent',
  resume: () => 'routes/resume?aggregate_type=Order&event_type=*',
  plugins: () => 'plugins',
  sinks: () => 'sinks',
  hosts: () => 'hosts',
  audit: () => 'audit',
  login: () => 'login',
};

for (const [name, path] of Object.entries(PAGES)) {
  test(`${name} fits every screen, is accessible, light, and read after one round trip`, async () => {
    const address = host.at(path());
    const open = (page) => page.evaluate(() => document.querySelectorAll('main details').forEach((one) => (one.open = true)));
    await onScreens(name, address, undefined, open);
    await light(name, address);
  });
}

test('the list of events says where each stands, and each filter narrows it', async () => {
  const { page, close } = await visitor();
  const rows = async (query) => {
    await page.goto(host.at(`events?${query}`));
    return page.locator('table.rows tbody tr').count();
  };
  assert.equal(await rows('status=dead'), 17);
  assert.equal(await rows('status=parked'), 2);
  assert.equal(await rows('status=blocked'), 2);
  assert.equal(await rows('status=retry'), 1);
  assert.equal(await rows('status=claimed'), 0);
  assert.equal(await rows('status=delayed&aggregate_type=Order'), 1);
  assert.equal(await page.locator('td .state.delayed').count(), 1, 'its row says so too');
  assert.equal(await rows('header=channel%3Dweb'), 17);
  assert.equal(await rows('since=1h'), 50, 'a page');
  assert.equal(await rows('until=1h'), 0);
  assert.equal(await rows('since=2026-01-01T00%3A00%3A00Z&until=2026-01-02T00%3A00%3A00Z'), 0);
  await close();
});

test('a paused pattern is shown at every route that it holds, and is resumed as a whole', async () => {
  const { page, close } = await visitor();
  await page.goto(host.at('routes'));
  const row = (name) => page.locator('tr', { has: page.locator('a.row', { hasText: new RegExp(`^${name.replace(/[/*]/g, '\\$&')}$`) }) });
  for (const name of ['Order/*', 'Order/OrderPaid', 'Order/OrderPlaced']) {
    assert.match(await row(name).innerText(), /paused/, name);
  }
  assert.match(await row('Order/OrderPlaced').innerText(), /with Order\/\* .* by .*: the warehouse moves/s);
  assert.doesNotMatch(await row('Trouble/Retryable').innerText(), /paused/);
  await row('Order/OrderPlaced').getByRole('link', { name: 'Resume Order/*' }).click();
  assert.match(await page.locator('h1').innerText(), /Resume the route Order\/\*/);
  await close();
});

test('the page of plugins shows what each asks for beside what it is granted, its limits beside their use, and its swaps', async () => {
  const { page, close } = await visitor();
  await page.goto(host.at('plugins'));
  const effects = page.locator('section.plugin', { has: page.locator('h2', { hasText: 'effects' }) });
  const state = await effects.locator('tr', { hasText: 'state = true' }).innerText();
  assert.match(state, /state\s+yes\s+.*no.*add `state = true` at the top of effects\.toml/s);
  const mailer = page.locator('section.plugin', { has: page.locator('h2', { hasText: 'order-mailer' }) });
  const fuel = await mailer.locator('tr', { hasText: 'Fuel' }).innerText();
  assert.match(fuel, /200.000.000\s+[1-9][\d,]*\s+\d+ %/u, 'the most that a call used');
  assert.match(await mailer.locator('ol.timeline').innerText(), /loaded/);
  await close();
});

test('a page that is open sends only what has changed, and little of it', async () => {
  const visit = await visitor();
  const answers = [];
  visit.page.on('response', async (response) => {
    if (response.request().headers()['outbox-has'] !== undefined) answers.push((await response.body()).length);
  });
  await visit.page.goto(host.at('events'));
  const whole = (await visit.page.content()).length;
  await eventually('three answers', () => answers.length >= 3);
  assert.ok(Math.max(...answers) < whole / 5 && Math.max(...answers) < 5_000, `${answers} of ${whole}`);
  answers.length = 0;
  await visit.page.goto(host.at());
  await eventually('three answers', () => answers.length >= 3);
  assert.ok(Math.max(...answers) < 60_000, `${answers}`);
  nothingWrong(visit, 'an open page');
  await visit.close();
});

test('what is said to be some seconds ago grows older in a page that stays open', async () => {
  const { page, close } = await visitor();
  await page.clock.install();
  await page.goto(host.at('events?status=dead'));
  const times = () => page.locator('table.rows time').allInnerTexts();
  assert.ok((await times()).every((time) => /^\d+ (s|min) ago$/.test(time)), `${await times()}`);
  await page.clock.fastForward('02:00:30');
  await eventually('they are two hours old', async () => (await times()).every((time) => time === '2 h ago'));
  await close();
});

test('each change in a chart can be focused, has a name, and shows its text', async () => {
  const visit = await visitor();
  const { page } = visit;
  const marks = () => page.getByRole('img', { name: /, by / });
  await eventually('the pause is marked', async () => {
    await page.goto(host.at());
    return (await page.getByRole('img', { name: /pause .*, by / }).count()) > 0;
  });
  assert.equal(await marks().count(), await page.locator('g.change').count(), 'every mark has a role and a name');
  const shown = () => page.locator('.tooltip div:visible');
  assert.equal(await shown().count(), 0);

  const isFocused = () => page.evaluate(() => document.activeElement.matches('g.change'));
  for (let step = 0; !(await isFocused()); step += 1) {
    assert.ok(step < 60, 'a mark can be reached by Tab');
    await page.keyboard.press('Tab');
  }

  const { name, stroke } = await page.evaluate(() => {
    const mark = document.activeElement;
    return { name: mark.getAttribute('aria-label'), stroke: getComputedStyle(mark.querySelector('rect')).strokeWidth };
  });
  assert.equal(stroke, '2px', 'the focus is visible');
  assert.equal(await shown().count(), 1);
  assert.equal((await shown().textContent()).replaceAll('\n', '; '), name);
  await page.locator('#search').focus();
  assert.equal(await shown().count(), 0);
  await page.locator('g.change rect').last().hover();
  await eventually('a mark shows its text to a mouse too', async () => (await shown().count()) === 1);
  nothingWrong(visit, 'the charts');
  await visit.close();
});

test('a search leads to what it names', async () => {
  const { page, close } = await visitor();
  await page.goto(host.at('events?status=dead'));
  await page.locator('#search').fill('OrderPaid');
  await page.keyboard.press('Enter');
  await page.waitForURL(/event_type=OrderPaid/);
  assert.equal(await page.locator('table.rows tbody tr').count(), 17);
  await page.locator('#search').fill(dead);
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`events/${dead}`));
  await close();
});
