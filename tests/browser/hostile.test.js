// Whoever writes events chooses every text in them: nothing of it runs, in the browser, in a shell, or in a database.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { closeBrowser, fits, nothingWrong, onScreens, visitor } from './support/browser.js';
import { Place, eventually, given, stopHosts } from './support/program.js';

const HTML = `</pre></title></style><script>alert(1)</script><img src=x onerror=alert(2)>"'><svg onload=alert(3)>`;
/** Escapes of a terminal, a mark that turns the direction of text, a carriage return. */
const HIDDEN = '\u001b[2J\u202e\u0007\r';
const EVIL = `${HTML} $(reboot) \`reboot\` '; DROP TABLE outbox_event; -- \\ ${HIDDEN} ünï😀`;

let place;
let host;
const ids = {};

/** Rows as another program may write them, past every check of ours. */
function sql(statement, parameters = []) {
  const program = `
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=30)
rows = database.execute(sys.argv[2], json.loads(sys.argv[3])).fetchall()
database.commit()
print(json.dumps([[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]))
`;
  const output = execFileSync(given('OUTBOX_TEST_PYTHON'), ['-c', program, join(place.path, 'outbox.db'), statement, JSON.stringify(parameters)]);
  return JSON.parse(output);
}

before(async () => {
  place = new Place('hostile');
  place.plugin('order-mailer');
  host = await place.host();
  // The failure of the plugin quotes the payload.
  await place.emit([{ event_id: 'W'.repeat(36), event_type: 'OrderPaid', aggregate_type: 'Order', aggregate_id: HTML.slice(0, 128), headers: { note: HTML }, payload: { order_id: EVIL, total: 1 } }]);
  await place.wait('dead', 1);
  sql(
    'INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload) VALUES (?, ?, ?, ?, ?, ?, CAST(? AS BLOB))',
    [EVIL, EVIL, EVIL, EVIL, JSON.stringify({ note: HTML }), HTML, EVIL],
  );
  await eventually('it was read', async () => (await place.stats()).dead === 2);
  for (const [id, type] of sql('SELECT event_id, event_type FROM outbox_event ORDER BY seq')) ids[type === EVIL ? 'row' : 'event'] = id;
  sql("UPDATE outbox_event SET last_error = ? WHERE event_id = ?", [`${EVIL}\nsecond line ${EVIL}`, ids.row]);
  await place.run(['dead', 'replay', ids.event, '--reason', `because ${HTML}`, '--yes']);
  await place.wait('dead', 2);
  await place.run(['route', 'pause', 'Order/OrderPaid', '--reason', HTML, '--yes']);
});

after(async () => {
  await closeBrowser();
  await stopHosts();
});

const PAGES = ['', 'events', 'dead', 'routes', 'plugins', 'sinks', 'hosts', 'audit', 'dead/replay', 'dead/discard'];

for (const script of [true, false]) {
  test(`no text of a writer runs on any page, ${script ? 'with' : 'without'} a script of ours`, async () => {
    const visit = await visitor({ script });
    const { page } = visit;
    const events = [ids.event, ids.row].flatMap((id) => [`events/${id}`, `events/${id}?payload=show`]);
    const searches = [`events?error=${encodeURIComponent(HTML)}`, `dead?event_type=${encodeURIComponent(EVIL)}`, `login?back=${encodeURIComponent(HTML)}`];
    for (const path of [...PAGES, ...events, ...searches]) {
      await page.goto(host.at(path));
      const found = await page.evaluate(() => ({
        scripts: document.querySelectorAll('script').length,
        strangers: document.querySelectorAll('img, iframe, object, embed, [onerror], [onload], [style], svg:not(.chart svg)').length,
        hidden: /[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]/u.test(document.body.innerText),
      }));
      assert.deepEqual(found, { scripts: 1, strangers: 0, hidden: false }, path);
      nothingWrong(visit, path);
      await fits(page, path);
    }
    await visit.close();
  });
}

test('texts full of HTML are shown as they are, on every screen', async () => {
  await onScreens('hostile-event', host.at(`events/${ids.event}?payload=show`));
  await onScreens('hostile-row', host.at(`events/${ids.row}?payload=show`), undefined, (page) =>
    page.evaluate(() => document.querySelectorAll('main details').forEach((one) => (one.open = true))),
  );
  await onScreens('hostile-dead', host.at('dead'));
  await onScreens('hostile-audit', host.at('audit'));
  const { page, close } = await visitor();
  await page.goto(host.at('audit'));
  assert.ok((await page.locator('main').innerText()).includes(`because ${HTML}`));
  await close();
});

test('a script that came into a page all the same would be stopped by its policy', async () => {
  const { page, wrong, close } = await visitor();
  await page.goto(host.at());
  const ran = await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.ran = true';
    document.body.append(script);
    const image = document.createElement('div');
    image.innerHTML = '<img src="x" onerror="window.ran = true">';
    document.body.append(image);
    return new Promise((done) => setTimeout(() => done(window.ran ?? false), 500));
  });
  assert.equal(ran, false);
  assert.ok(wrong.length >= 2 && wrong.every((said) => said.includes('Content Security Policy')), wrong.join('\n'));
  await close();
});

/** The two commands of the page of an event. */
async function commands(id) {
  const { page, close } = await visitor();
  await page.goto(host.at(`events/${id}?payload=show`));
  const all = await page.locator('pre[data-copy]').evaluateAll((every) => every.map((one) => one.textContent));
  await close();
  assert.equal(all.length, 2);
  return { curl: all[0], insert: all[1] };
}

for (const which of ['event', 'row']) {
  test(`the command to copy of an evil ${which} is one request to every shell, and writes the same event`, async () => {
    const { curl } = await commands(ids[which]);
    const script = `curl() { for word in "$@"; do printf '%s\\0' "$word"; done; }; ${curl}`;
    const words = execFileSync('sh', ['-c', script], { env: { HOST_URL: 'http://here' }, encoding: 'utf8' }).split('\0').slice(0, -1);
    assert.deepEqual(words.slice(0, -1), ['-X', 'POST', 'http://here/v1/events', '-H', 'Content-Type: application/json', '--data-binary']);
    if (which === 'row') return; // its type breaks the rules of the API
    const answer = await fetch(host.at('v1/events'), { method: 'POST', headers: { 'content-type': 'application/json' }, body: words.at(-1) });
    assert.equal(answer.status, 201, await answer.text());
    same(ids.event);
  });

  test(`the statement to copy of an evil ${which} is one statement, and writes the same event`, async () => {
    const { insert } = await commands(ids[which]);
    assert.match(insert, /^[ -~]+;$/);
    sql(insert);
    same(ids[which]);
  });
}

/** The newest row carries what this one does, byte for byte. */
function same(id) {
  const columns = 'event_type, aggregate_type, aggregate_id, tenant_id, content_type, hex(payload)';
  const [[type, aggregate, aggregateId, tenant, content, payload]] = sql(`SELECT ${columns} FROM outbox_event WHERE event_id = ?`, [id]);
  const [newest] = sql(`SELECT ${columns} FROM outbox_event ORDER BY seq DESC LIMIT 1`);
  assert.deepEqual(newest.slice(0, 5), [type, aggregate, aggregateId, tenant, content]);
  const text = (hex) => Buffer.from(hex, 'hex').toString();
  if (newest[5] !== payload) assert.deepEqual(JSON.parse(text(newest[5])), JSON.parse(text(payload)));
  const headers = (of) => JSON.parse(sql(`SELECT headers FROM outbox_event ${of}`)[0][0]);
  assert.deepEqual(headers('ORDER BY seq DESC LIMIT 1'), headers(`WHERE event_id = '${id}'`));
}
