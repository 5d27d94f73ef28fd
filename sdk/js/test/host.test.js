import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { call, emit, log, publish, Refusal, settings, state, utf8 } from '../src/index.js';
import { host } from '../src/testing.js';

beforeEach(() => host.reset());

test('a line has fields of any kind, and is text that the engine can hand over', () => {
  log.info('half \ud800', { order_id: 7, total: 9.5, order: { id: 7 }, none: undefined, error: new Error('a', { cause: 'b' }) });

  assert.deepEqual(host.logs, [{ level: 'info', message: 'half \ufffd', fields: { order_id: '7', total: '9.5', order: '{"id":7}', error: 'a: b' } }]);
});

test('a level is enabled when the host keeps it', () => {
  host.maxLevel = 'warn';
  assert.deepEqual(['trace', 'info', 'warn', 'error'].map(log.enabled), [false, false, true, true]);
  host.maxLevel = undefined;
  assert.equal(log.enabled('error'), false);
});

test('settings and secrets are the operator\'s, and absent ones are undefined', () => {
  host.settings = { b: '2', a: '1' };
  host.secrets = { token: 's' };

  assert.deepEqual([settings.get('a'), settings.get('x'), settings.secret('token'), settings.secret('a')], ['1', undefined, 's', undefined]);
  assert.deepEqual(Object.entries(settings.getAll()), [['a', '1'], ['b', '2']]);
  assert.equal(settings.require('b'), '2');
  assert.throws(() => settings.requireSecret('x'), { kind: 'retryable', code: 'missing-secret', message: /add it to \[secrets\]/ });
});

test('the time that is left is a number without a sign', () => {
  assert.equal(call.remainingMs(), 5000);
  host.remainingMs = 4294967295;
  assert.equal(call.remainingMs(), 4294967295);
});

test('an event is emitted with what it has, and nothing else', () => {
  const id = emit({ route: 'Order/OrderShipped', json: { id: 7 }, aggregateId: 42, headers: { a: 'b' }, deliverAfterMs: 0, expiresAfterMs: 5000 });

  const [{ payload, ...rest }] = host.emitted;
  assert.deepEqual(rest, {
    route: { aggregateType: 'Order', eventType: 'OrderShipped' },
    aggregateId: '42', tenantId: undefined, contentType: 'application/json', headers: [['a', 'b']], id, deliverAfterMs: undefined, expiresAfterMs: 5000, attributes: [],
  });
  assert.equal(utf8.decode(payload), '{"id":7}');
});

test('a delay that an engine would change is refused', () => {
  for (const wrong of [2 ** 31, -1, NaN, '5']) assert.throws(() => emit({ route: 'T/x', json: 1, expiresAfterMs: wrong }), RangeError);
});

test('a body is text, bytes or JSON, and has its content type', () => {
  publish.send('s', { body: 'hej å' });
  publish.send('s', { body: new Uint8Array([1, 2]) });
  publish.send('s', { body: new Uint16Array([1]).buffer, contentType: 'x/y' });
  publish.send('s', { json: [1], key: 5 });
  publish.send('s', {});

  assert.deepEqual(host.published.map(({ contentType, key, body }) => [contentType, key, body.length]), [
    ['text/plain; charset=utf-8', undefined, 6], ['application/octet-stream', undefined, 2], ['x/y', undefined, 2], ['application/json', '5', 3], ['application/octet-stream', undefined, 0],
  ]);
  assert.throws(() => publish.send('s', { body: { a: 1 } }), { message: /for an object use `json`/ });
  assert.throws(() => publish.send('s', { json: 1, body: 'x' }), { message: /give one of them/ });
  assert.throws(() => publish.send('s', { json: () => {} }), { message: /JSON cannot write/ });
});

test('messages that go together are answered one by one', () => {
  assert.deepEqual(publish.sendAll('s', [{ body: 'a' }, { body: 'b' }]), [undefined, undefined]);
  host.refusals['publish.sendAll'] = { kind: 'unavailable', message: 'down' };
  const [refusal] = publish.sendAll('s', [{ body: 'c' }]);
  assert.ok(refusal instanceof Refusal);
  assert.equal(refusal.kind, 'unavailable');
  assert.equal(host.published.length, 2);
});

test('state is bytes, text or JSON', () => {
  assert.equal(state.get('k'), undefined);
  assert.equal(state.getJson('k'), undefined);
  state.set('k', 'å');
  assert.deepEqual([...state.get('k')], [0xc3, 0xa5]);
  assert.equal(state.getText('k'), 'å');
  assert.throws(() => state.getJson('k'), { kind: 'unrecoverable', message: /^invalid state under `k`: / });
  state.setJson('k', { n: 1 });
  assert.deepEqual(state.getJson('k'), { n: 1 });
  state.delete('k');
  assert.equal(state.get('k'), undefined);
  assert.throws(() => state.set('k', undefined), { message: /to remove a key use delete/ });
});

test('what the host refuses is thrown as a refusal', () => {
  for (const [name, act] of [['emit', () => emit({ route: 'T/x', json: 1 })], ['publish.send', () => publish.send('s', {})], ['state.get', () => state.get('k')], ['state.set', () => state.set('k', 'v')], ['state.delete', () => state.delete('k')]]) {
    host.refusals = { [name]: { kind: 'not-granted', message: `say ${name}` } };
    assert.throws(act, { name: 'Refusal', kind: 'not-granted', message: `say ${name}` });
  }
});
