// Everything that can be done on the pages, with a script, without one, and by keys alone.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { closeBrowser, nothingWrong, visitor } from './support/browser.js';
import { Place, eventually, stopHosts } from './support/program.js';

let place;
let host;

before(async () => {
  place = new Place('actions');
  place.plugin('order-mailer');
  place.plugin('trouble', 'retry = { policy = "fixed", base = "5ms", max_attempts = 1 }\n');
  host = await place.host();
});

after(async () => {
  await closeBrowser();
  await stopHosts();
});

/** Writes so many events of an aggregate type of their own that die at once, and waits until the pages know of them. */
async function deaths(event_type, count) {
  const before = (await place.stats()).dead;
  await place.emit(Array.from({ length: count }, (_, number) => ({ event_type, aggregate_type: 'Trouble', payload: { number } })));
  await place.wait('dead', before + count);
}

async function ids(event_type) {
  const listed = await place.run(['event', 'list', '--type', event_type, '--limit', '500', '--output', 'json']);
  return JSON.parse(listed).map((event) => event.event_id);
}

async function lastOfAudit() {
  return JSON.parse(await place.run(['audit', 'list', '--output', 'json']))[0];
}

async function show(event_type) {
  const [id] = await ids(event_type);
  return JSON.parse(await place.run(['event', 'show', id, '--output', 'json']));
}

for (const script of [true, false]) {
  const how = script ? 'with a script' : 'without a script';

  test(`one event is replayed ${how}, and only with a reason`, async () => {
    const type = script ? 'Dead' : 'Unrecoverable';
    await deaths(type, 1);
    const visit = await visitor({ script });
    const { page } = visit;
    await page.goto(host.at(`dead?event_type=${type}`));
    await page.locator('table.rows tbody a.row').click();
    assert.match(await page.locator('main').innerText(), /It was given up/);
    const form = page.locator('form.action', { hasText: 'Replay this event' });
    await form.getByRole('button').click();
    assert.match(page.url(), /events\/[^/]+$/, 'the browser asks for the reason');
    assert.equal((await show(type)).replays, 0, 'nothing was done without one');
    await form.getByPlaceholder('Reason').fill('it works again');
    await form.getByRole('button').click();
    await page.locator('.notice', { hasText: 'The event is new again' }).waitFor();
    await eventually('it was tried again', async () => (await show(type)).replays === 1);
    await page.goto(page.url());
    assert.match(await page.locator('ol.timeline').innerText(), /replay by local: it works again/);
    assert.equal((await lastOfAudit()).reason, 'it works again');
    nothingWrong(visit, how);
    await visit.close();
  });

  test(`one event is discarded ${how}`, async () => {
    const type = script ? 'Panic' : 'Retryable';
    await deaths(type, 1);
    const visit = await visitor({ script });
    const { page } = visit;
    const [id] = await ids(type);
    await page.goto(host.at(`events/${id}`));
    const form = page.locator('form.action', { hasText: 'Discard this event' });
    await form.getByPlaceholder('Reason').fill('made up');
    await form.getByRole('button').click();
    await page.locator('.notice', { hasText: 'The event is deleted.' }).waitFor();
    assert.deepEqual(await ids(type), []);
    nothingWrong(visit, how);
    await visit.close();
  });

  test(`a route is paused and resumed ${how}`, async () => {
    const visit = await visitor({ script });
    const { page } = visit;
    await page.goto(host.at('routes'));
    const row = page.locator('tr', { has: page.getByText('Order/OrderPaid', { exact: true }) });
    await row.getByRole('link', { name: 'Pause' }).click();
    assert.match(await page.locator('main').innerText(), /Every host stops calling the listener/);
    await page.getByLabel('Reason').fill('the bank is down');
    await page.getByRole('button', { name: 'Pause the route' }).click();
    await page.locator('.notice', { hasText: 'The route is paused' }).waitFor();
    assert.match(await row.innerText(), /paused .*: the bank is down/s);
    assert.match(await page.locator('#nav').innerText(), /Routes ‖1/);
    await row.getByRole('link', { name: 'Resume' }).click();
    await page.getByLabel('Reason').fill('the bank is back');
    await page.getByRole('button', { name: 'Resume the route' }).click();
    await page.locator('.notice', { hasText: 'The route is resumed' }).waitFor();
    assert.doesNotMatch(await row.innerText(), /paused/);
    nothingWrong(visit, how);
    await visit.close();
  });
}

test('many are replayed: what would be done is shown, a reason is asked for, progress moves, and it can be stopped', async () => {
  await deaths('Files', 150);
  const visit = await visitor();
  const { page } = visit;
  await page.goto(host.at('dead?event_type=Files'));
  await page.getByRole('link', { name: 'Replay all 150' }).click();
  const facts = await page.locator('dl.facts').innerText();
  assert.match(facts, /150, as of .*events that die later are left alone/s);
  assert.match(facts, /150 × Trouble\/Files/);
  await page.getByLabel('Speed').selectOption('10');
  await page.getByRole('button', { name: 'Replay 150 events' }).click();
  assert.match(page.url(), /dead\/replay/, 'the browser asks for the reason');
  assert.ok((await Promise.all((await ids('Files')).slice(0, 1).map((id) => place.run(['event', 'show', id, '--output', 'json'])))).every((event) => JSON.parse(event).replays === 0));
  await page.getByLabel('Reason').fill('the disk is back');
  await page.getByRole('button', { name: 'Replay 150 events' }).click();
  await page.waitForURL(/jobs\/\d+$/);
  const moved = page.locator('#progress .lead', { hasText: /^[1-9]\d* of 150 so far\.$/ });
  await moved.waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  const stopped = page.locator('#progress .lead', { hasText: /^Stopped after \d+ events; the other events are unchanged\.$/ });
  await stopped.waitFor();
  const count = Number((await stopped.innerText()).match(/\d+/)[0]);
  assert.ok(count > 0 && count < 150, `${count}`);
  assert.equal((await lastOfAudit()).reason, 'the disk is back');
  nothingWrong(visit, 'a replay of many');
  await visit.close();
});

test('many are discarded, without a script too', async () => {
  await deaths('Sockets', 20);
  const { page, close } = await visitor({ script: false });
  await page.goto(host.at('dead?event_type=Sockets'));
  await page.getByRole('link', { name: 'Discard all 20' }).click();
  assert.match(await page.locator('main').innerText(), /deleted permanently/);
  await page.getByLabel('Reason').fill('made up');
  await page.getByRole('button', { name: 'Discard 20 events' }).click();
  await page.waitForURL(/jobs\/\d+$/);
  await eventually('all are discarded', async () => {
    await page.reload();
    return (await page.locator('main').innerText()).includes('20 events were discarded.');
  });
  assert.deepEqual(await ids('Sockets'), []);
  await close();
});

test('what died meanwhile is not replayed unseen', async () => {
  await deaths('Names', 3);
  const { page, close } = await visitor();
  await page.goto(host.at('dead/discard?event_type=Names'));
  await page.getByLabel('Reason').fill('made up');
  const [first] = await ids('Names');
  await place.run(['dead', 'discard', first, '--yes']);
  await page.getByRole('button', { name: 'Discard 3 events' }).click();
  await page.getByText('Nothing was done: you saw 3 events, and now 2 match.').waitFor();
  assert.equal((await ids('Names')).length, 2);
  await close();
});

test('by keys alone an event is found, opened and replayed, and the focus is always seen', async () => {
  await deaths('Environment', 3);
  const visit = await visitor();
  const { page } = visit;
  const focus = () =>
    page.evaluate(() => {
      const { activeElement: at } = document;
      const { outlineStyle, outlineWidth } = getComputedStyle(at);
      return { tag: at.tagName, id: at.id, name: at.name ?? '', text: at.textContent.trim(), ring: `${outlineWidth} ${outlineStyle}` };
    });
  await page.goto(host.at());
  await page.keyboard.press('Tab');
  assert.deepEqual([(await focus()).text, (await focus()).ring], ['Skip to the content', '2px solid']);
  await page.keyboard.press('?');
  assert.ok(await page.locator('dialog#keys').isVisible());
  await page.keyboard.press('Escape');
  assert.ok(!(await page.locator('dialog#keys').isVisible()));
  await page.keyboard.press('/');
  assert.deepEqual([(await focus()).id, (await focus()).ring], ['search', '2px solid']);
  await page.keyboard.type('Environment');
  await page.keyboard.press('Enter');
  await page.waitForURL(/event_type=Environment/);
  const wanted = await page.locator('a.row').allInnerTexts();
  assert.equal(wanted.length, 3);
  const at = [];
  for (const key of ['j', 'j', 'j', 'j', 'k']) {
    await page.keyboard.press(key);
    const { text, ring } = await focus();
    assert.equal(ring, '2px solid', 'a row shows its focus');
    at.push(wanted.indexOf(text));
  }
  assert.deepEqual(at, [0, 1, 2, 2, 1], 'j and k move by one row and stop at the ends');
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`events/${wanted[1]}`));
  for (let step = 0; (await focus()).name !== 'reason'; step += 1) {
    assert.ok(step < 40, 'the reason can be reached by Tab');
    await page.keyboard.press('Tab');
    assert.match((await focus()).ring, /^2px solid$/, JSON.stringify(await focus()));
  }
  await page.keyboard.type('by keys');
  await page.keyboard.press('Enter');
  await page.locator('.notice', { hasText: 'The event is new again' }).waitFor();
  assert.deepEqual([(await lastOfAudit()).action, (await lastOfAudit()).reason], ['replay', 'by keys']);
  nothingWrong(visit, 'by keys');
  await visit.close();
});

test('colours can be chosen, and stay', async () => {
  const { page, close } = await visitor();
  await page.goto(host.at('events?status=dead'));
  const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const before = await paper();
  await page.getByRole('button', { name: /^Colours: system/ }).click();
  await page.waitForURL(/events\?status=dead$/);
  assert.notEqual(await paper(), before);
  await page.goto(host.at('audit'));
  assert.notEqual(await paper(), before);
  await close();
});
