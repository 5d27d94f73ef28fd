// A host that wants tokens: who gets in, and what each role sees.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { closeBrowser, nothingWrong, onScreens, visitor } from './support/browser.js';
import { Place, given, stopHosts } from './support/program.js';

const tokens = {};
let host;
let id;

before(async () => {
  const place = new Place('tokens');
  const sections = [];
  for (const role of ['viewer', 'operator']) {
    // The token goes to standard output, its lines for the configuration to standard error.
    const said = execFileSync('sh', ['-c', '"$0" token new --name "$1" --role "$2" 2>"$3"', given('OUTBOX_TEST_PROGRAM'), `ada the ${role}`, role, join(place.path, 'lines')], { encoding: 'utf8' });
    tokens[role] = said.trim();
    sections.push(readFileSync(join(place.path, 'lines'), 'utf8').split('\n\n').slice(1).join('\n\n'));
  }
  writeFileSync(join(place.path, 'outbox.toml'), sections.join('\n'));
  place.plugin('order-mailer');
  host = await place.host();
  await place.emit([{ event_type: 'OrderPaid', aggregate_type: 'Order', headers: { secret: 'in a header' }, payload: { note: 'in the payload' } }]);
  await place.wait('dead', 1);
  id = JSON.parse(await place.run(['event', 'list', '--output', 'json']))[0].event_id;
});

after(async () => {
  await closeBrowser();
  await stopHosts();
});

async function logIn(page, token, path = '') {
  await page.goto(host.at(path));
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
}

test('the log-in fits every screen and says why a token is refused', async () => {
  await onScreens('log-in', host.at('events'));
  const visit = await visitor();
  await logIn(visit.page, 'obx_of-somebody-else');
  assert.match(await visit.page.getByRole('alert').innerText(), /Refused: this host does not know this token/);
  nothingWrong(visit, 'a refused token');
  await visit.close();
});

test('who logs in comes to the page that was asked for, and who logs out sees nothing any more', async () => {
  const visit = await visitor();
  const { page } = visit;
  await logIn(page, tokens.operator, 'events?status=dead');
  await page.waitForURL(/events\?status=dead$/);
  assert.equal(await page.locator('table.rows tbody tr').count(), 1);
  assert.equal(await page.evaluate(() => document.cookie.includes('session')), false, 'no script reads the session');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  await page.goto(host.at('events'));
  await page.getByLabel('Token').waitFor();
  nothingWrong(visit, 'in and out');
  await visit.close();
});

test('a viewer sees neither payload nor headers, finds no button, and may do nothing', async () => {
  const visit = await visitor();
  const { page } = visit;
  await logIn(page, tokens.viewer, `events/${id}?payload=show`);
  await page.getByText('Your role may not see payloads and headers.').waitFor();
  const text = await page.content();
  for (const hidden of ['in a header', 'in the payload', 'INSERT INTO', 'curl']) assert.ok(!text.includes(hidden), hidden);
  assert.equal(await page.locator('main form').count(), 0);
  await page.goto(host.at('dead/replay'));
  assert.match(await page.locator('main').innerText(), /has the role viewer; this needs the role operator/);
  nothingWrong(visit, 'a viewer');
  await visit.close();
});

test('an operator sees the payload and commands to copy, with the token left to the shell', async () => {
  const visit = await visitor({ permissions: ['clipboard-read', 'clipboard-write'] });
  const { page } = visit;
  await logIn(page, tokens.operator, `events/${id}?payload=show`);
  await page.getByText('Copy as curl').click();
  const command = await page.locator('pre[data-copy]').first().innerText();
  assert.match(command, /Bearer \$OUTBOX_TOKEN/);
  await page.getByRole('button', { name: 'Copy', exact: true }).first().click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);
  assert.ok(!(await page.content()).includes(tokens.operator));
  nothingWrong(visit, 'an operator');
  await visit.close();
});
