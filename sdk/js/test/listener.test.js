import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { batchListener, checkSettings, dead, done, Failure, listener, settings } from '../src/index.js';
import { deliver, deliverAll, host, testEvent } from '../src/testing.js';

beforeEach(() => host.reset());

test('a plugin describes itself', () => {
  const handler = listener({ name: 'mailer', version: '2.1.0', routes: { 'User/UserRegistered': () => done, Tick: () => done }, attributes: { a: 1 } });

  assert.deepEqual(handler.describe(), {
    name: 'mailer',
    version: '2.1.0',
    routes: [{ aggregateType: 'User', eventType: 'UserRegistered' }, { aggregateType: '__GLOBAL__', eventType: 'Tick' }],
    attributes: [['a', '1']],
  });
});

test('an event finds the function of its route', () => {
  const seen = [];
  const answer = (what) => (event) => { seen.push(`${what} ${event.json()}`); return done; };
  const handler = listener({ routes: { 'A/x': answer('A/x'), 'B/x': answer('B/x'), 'constructor/toString': answer('odd') } });

  deliver(handler, testEvent('B/x', { json: 1 }));
  deliver(handler, testEvent('constructor/toString', { json: 2 }));

  assert.deepEqual(seen, ['B/x 1', 'odd 2']);
});

test('an event on another route is an unrecoverable failure', () => {
  const handler = listener({ routes: { 'A/x': () => done } });
  for (const route of ['A/y', 'constructor', '__proto__/x']) {
    assert.throws(() => deliver(handler, testEvent(route)), { kind: 'unrecoverable', message: /^this plugin does not answer / });
  }
});

test('routes that cannot be are refused when the module is evaluated', () => {
  for (const [routes, said] of [
    [undefined, /at least one route/],
    [{}, /at least one route/],
    [{ 'A/': () => done }, /empty event type/],
    [{ '/x': () => done }, /empty aggregate type/],
    [{ [`A/${'x'.repeat(129)}`]: () => done }, /more than 128 characters/],
    [{ 'A/x\n': () => done }, /no name may hold/],
    [{ 'A/x': 5 }, /needs a function/],
    [{ 'A/x': async () => done }, /async/],
    [{ x: () => done, '__GLOBAL__/x': () => done }, /listed twice/],
  ]) {
    assert.throws(() => listener({ routes }), { name: 'TypeError', message: said });
  }
});

test('a check of settings throws a plain string', () => {
  const { checkSettings: check } = checkSettings(() => settings.require('endpoint'));

  assert.throws(() => check(), (why) => why === "the setting `endpoint` is missing; add it to [config] of the plugin's manifest");
  host.settings.endpoint = 'x';
  assert.equal(check(), undefined);
});

test('neighbours of one route go together, the others alone, and the order stays', () => {
  const seen = [];
  const handler = listener({ routes: { 'A/x': () => { seen.push('alone'); return dead('alone'); }, 'B/x': () => done } });
  const batchHandler = batchListener(handler, { 'B/x': (events) => { seen.push(events.length); return events.map(() => done); } });

  const answers = deliverAll(batchHandler, ['B/x', 'B/x', 'A/x', 'B/x', 'C/x'].map((route) => testEvent(route)));

  assert.deepEqual(seen, [2, 'alone', 1]);
  assert.deepEqual(answers.slice(0, 4), [done, done, dead('alone'), done].map((answer) => ({ ...answer })));
  assert.match(answers[4].message, /does not answer C\/x/);
});

test('an error in the place of an answer fails that event alone', () => {
  const batchHandler = batchListener(listener({ routes: { 'A/x': () => done } }), { 'A/x': ([, , ...rest]) => [done, Failure.unrecoverable('no'), ...rest.map(() => undefined)] });

  const [first, second, third] = deliverAll(batchHandler, Array.from({ length: 3 }, () => testEvent('A/x')));

  assert.deepEqual(first, { tag: 'done' });
  assert.equal(second.kind, 'unrecoverable');
  assert.match(third.message, /returned undefined/);
});

test('a batch function that throws or returns too few answers fails all of its events', () => {
  const handler = listener({ routes: { 'A/x': () => done } });
  const events = [testEvent('A/x'), testEvent('A/x')];

  for (const [batch, said] of [[() => { throw new Error('down'); }, /^down$/], [() => [done], /got 2 events and returned 1 answers/], [() => done, /returned no array/]]) {
    for (const failure of deliverAll(batchListener(handler, { 'A/x': batch }), events)) assert.match(failure.message, said);
  }
});

test('a batch function is refused where nobody answers its route one by one', () => {
  const handler = listener({ routes: { 'A/x': () => done } });
  assert.throws(() => batchListener(handler, { 'B/x': (events) => events.map(() => done) }), { name: 'TypeError', message: /"B\/x" of batchListener must be among/ });
});
