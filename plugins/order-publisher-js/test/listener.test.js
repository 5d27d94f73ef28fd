import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { dead, done } from 'outbox-sdk';
import { deliver, host, testEvent } from 'outbox-sdk/testing';

import { handler, settingsCheck } from '../src/listener.js';

beforeEach(() => host.reset());

const placed = (json, fields) => testEvent('Order/OrderPlaced', { json, ...fields });

test('an order is published to the sink "orders" under its aggregate id', () => {
  const answer = deliver(handler, placed({ order_id: 42, total: 99.5, currency: 'EUR' }, { aggregateId: 'order-42' }));

  assert.deepEqual(answer, done);
  const [{ sink, subject, key, contentType, body }] = host.published;
  assert.deepEqual({ sink, subject, key, contentType }, { sink: 'orders', subject: 'orders.placed', key: 'order-42', contentType: 'application/json' });
  assert.deepEqual(JSON.parse(Buffer.from(body)), { orderId: 42, total: 99.5, placedAt: '2024-11-19T07:06:40.000Z' });
});

test('the operator chooses the sink', () => {
  host.settings.sink = 'warehouse';

  deliver(handler, placed({ order_id: 42, total: 99.5 }));

  assert.equal(host.published[0].sink, 'warehouse');
  assert.equal(host.published[0].key, '42');
});

test('an order that costs less than nothing is dead', () => {
  assert.deepEqual(deliver(handler, placed({ order_id: 42, total: -1 })), dead('an order cannot cost less than nothing'));
  assert.deepEqual(host.published, []);
});

test('a payload that is no order is unrecoverable and names the field', () => {
  for (const [payload, field] of [[{ total: 1 }, /order_id/], [{ order_id: 1 }, /total/], [null, /order_id/], ['order', /order_id/]]) {
    assert.throws(() => deliver(handler, placed(payload)), { kind: 'unrecoverable', message: field });
  }
});

test('a sink that the operator did not grant is a retryable failure with the line to add', () => {
  host.refusals['publish.send'] = { kind: 'not-granted', message: 'add sinks = ["orders"] under [publish] of order-publisher.toml' };

  const failing = () => deliver(handler, placed({ order_id: 42, total: 99.5 }));

  assert.throws(failing, { kind: 'retryable', code: 'not-granted', message: /add sinks = \["orders"\]/ });
});

test('an empty setting keeps the plugin from serving', () => {
  settingsCheck.checkSettings();
  host.settings.sink = ' ';
  assert.throws(() => settingsCheck.checkSettings(), (why) => why === 'the setting `sink` is empty; leave it out for the sink "orders"');
});
