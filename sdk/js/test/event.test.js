import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Event } from '../src/index.js';
import { testEvent } from '../src/testing.js';

const event = (fields, route = 'Order/OrderPlaced') => new Event(testEvent(route, fields));

test('the two engines make the same event', () => {
  const quickjs = event({ aggregateId: null, tenantId: 't', sequence: 7, occurredAtMs: 1_732_000_000_000 });
  const starlingmonkey = event({ aggregateId: undefined, tenantId: 't', sequence: 7n, occurredAtMs: 1_732_000_000_000n });

  assert.deepEqual(quickjs, starlingmonkey);
  assert.deepEqual([quickjs.aggregateId, quickjs.tenantId, quickjs.sequence], [undefined, 't', 7]);
  assert.equal(quickjs.occurredAt.toISOString(), '2024-11-19T07:06:40.000Z');
});

test('an attempt that QuickJS made negative is what it was', () => {
  assert.equal(event({ attempt: -1 }).attempt, 4294967295);
});

test('a header is found by its exact name', () => {
  const found = event({ headers: [['traceparent', '00-1'], ['traceparent', '00-2']], attributes: { deferrals: '3' } });

  assert.equal(found.header('traceparent'), '00-1');
  assert.equal(found.header('Traceparent'), undefined);
  assert.equal(found.attribute('deferrals'), '3');
});

test('a payload that does not parse is unrecoverable and says why', () => {
  const message = /^invalid payload: SyntaxError: /;
  assert.throws(() => event({ text: '{"id": 1,}' }).json(), { name: 'Failure', kind: 'unrecoverable', message });
});

test('a payload that is not UTF-8 is unrecoverable as text and as JSON', () => {
  const payload = new Uint8Array([0x22, 0xff, 0x22]);
  for (const read of ['text', 'json']) {
    assert.throws(() => event({ payload })[read](), { kind: 'unrecoverable', message: /TypeError: the bytes are not UTF-8$/ });
  }
});

test('what a check throws is unrecoverable, and what it returns is the payload', () => {
  const check = (value) => {
    if (!(value.total > 0)) throw new Error('`total` must be above 0');
    return value.total;
  };
  assert.equal(event({ json: { total: 5 } }).json(check), 5);
  assert.throws(() => event({ json: { total: -5 } }).json(check), { kind: 'unrecoverable', message: /^invalid payload: `total` must be above 0$/ });
});

test('an empty payload is empty text and no JSON', () => {
  assert.equal(event({ text: '' }).text(), '');
  assert.throws(() => event({ text: '' }).json(), { kind: 'unrecoverable' });
});

test('a route without a slash is of the aggregate type of all', () => {
  assert.deepEqual(event({}, 'Tick').route, { aggregateType: '__GLOBAL__', eventType: 'Tick' });
  assert.deepEqual(event({}, 'a/b/c').route, { aggregateType: 'a', eventType: 'b/c' });
});
