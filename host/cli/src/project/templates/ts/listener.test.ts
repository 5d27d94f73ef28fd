import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { dead, done } from 'outbox-sdk';
import { deliver, host, testEvent } from 'outbox-sdk/testing';

import { handler } from '../src/listener.js';

const delivered = (json: unknown) => deliver(handler, testEvent('{{aggregate_type}}/{{event_type}}', { json }));

beforeEach(() => host.reset());

test('a message is taken', () => {
  assert.deepEqual(delivered({ message: 'hello' }), done);
  assert.match(host.logs[0]!.message, /hello/);
});

test('an empty message is never delivered again', () => {
  assert.deepEqual(delivered({ message: '' }), dead('the message is empty'));
});

test('what is no message is never delivered again', () => {
  assert.throws(() => delivered({}), { kind: 'unrecoverable', message: /`message`/ });
});

test('an endpoint gets the event', () => {
  host.settings.endpoint = 'https://hooks.example.com/';
  host.http = () => ({ status: 204 });

  assert.deepEqual(delivered({ message: 'hello' }), done);
  assert.equal(host.requests[0]!.url, 'https://hooks.example.com/');
});
