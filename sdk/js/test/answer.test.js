import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { dead, done, Failure, listener, publish, emit, retryAfter } from '../src/index.js';
import { deliver, host, testEvent } from '../src/testing.js';

beforeEach(() => host.reset());

/** What the host gets of a listener that does this: the record of the contract, as it is. */
function outcome(act) {
  const handler = listener({ routes: { 'T/x': act } });
  try {
    return { ok: handler.onEvent(testEvent('T/x')) };
  } catch (record) {
    return { err: record };
  }
}

const thrown = (what) => outcome(() => { throw what; }).err;

test('answers are the variants of the contract', () => {
  assert.deepEqual(outcome(() => done), { ok: { tag: 'done' } });
  assert.deepEqual(outcome(() => retryAfter(1500)), { ok: { tag: 'retry-after', val: 1500 } });
  assert.deepEqual(outcome(() => dead('why')), { ok: { tag: 'dead', val: 'why' } });
  assert.deepEqual(outcome(() => dead()), { ok: { tag: 'dead', val: undefined } });
});

test('a delay is a whole number of milliseconds of at most 24 hours', () => {
  assert.equal(retryAfter(0.2).val, 1);
  assert.equal(retryAfter(5n).val, 5);
  assert.equal(retryAfter(Infinity).val, 86_400_000);
  for (const wrong of [NaN, -1, '5', undefined]) assert.throws(() => retryAfter(wrong), RangeError);
});

test('what is no answer is a retryable failure that says so', () => {
  for (const [value, said] of [[undefined, /returned undefined/], [true, /returned a boolean/], [{ tag: 'ok' }, /returned an object/], [Promise.resolve(done), /must not be async/]]) {
    const { err } = outcome(() => value);
    assert.match(err.message, said);
    assert.deepEqual(err.kind, { tag: 'retryable' });
  }
});

test('the three failures are the variants of the contract', () => {
  assert.deepEqual(thrown(Failure.retryable('m')), { message: 'm', code: undefined, kind: { tag: 'retryable' }, attributes: [] });
  assert.deepEqual(thrown(Failure.retryableAfter(250, 'm', { code: 'busy' })), { message: 'm', code: 'busy', kind: { tag: 'retryable-after', val: 250 }, attributes: [] });
  assert.deepEqual(thrown(Failure.unrecoverable('m', { details: { card: 'visa', cents: 5, none: undefined } })), {
    message: 'm', code: undefined, kind: { tag: 'unrecoverable' }, attributes: [['card', 'visa'], ['cents', '5']],
  });
});

test('any error becomes a retryable failure that names its causes and its place', () => {
  const record = thrown(new Error('sending the mail', { cause: new TypeError('bad port', { cause: 'x' }) }));

  assert.equal(record.message, 'sending the mail: TypeError: bad port: x');
  assert.deepEqual(record.kind, { tag: 'retryable' });
  assert.match(record.attributes[0][1], /answer\.test\.js/);
});

test('a failure made of an error says what the error says', () => {
  const record = thrown(Failure.unrecoverable(new Error('outer', { cause: new Error('inner') })));

  assert.equal(record.message, 'outer: inner');
  assert.deepEqual(record.kind, { tag: 'unrecoverable' });
});

test('an error of many names them all', () => {
  assert.equal(thrown(new AggregateError([new Error('a'), new Error('b')], 'both')).message, 'AggregateError: both: a; b');
});

test('errors that cause each other come to an end', () => {
  const [first, second] = [new Error('first'), new Error('second')];
  first.cause = second;
  second.cause = first;
  assert.match(thrown(first).message, /^first: second: first/);
});

test('whatever is thrown, the host gets a record that QuickJS can hand over', () => {
  const evil = new Proxy({}, { get() { throw new Error('no'); } });
  for (const what of [undefined, null, 0, 5n, 'text', Symbol('s'), {}, { a: 1n }, evil, Object.create(null), () => {}, 'half \ud800']) {
    const { message, code, kind, attributes } = thrown(what);
    assert.equal(typeof message, 'string');
    assert.ok(message.isWellFormed() && message !== '');
    assert.equal(code, undefined);
    assert.deepEqual([kind, attributes], [{ tag: 'retryable' }, []]);
  }
  assert.equal(thrown(undefined).message, 'the listener threw undefined');
  assert.equal(thrown({ a: 1 }).message, 'the listener threw an object: {"a":1}');
});

test('a code that the host would not take is made one that it takes', () => {
  assert.equal(thrown(Failure.retryable('m', { code: 'Card Declined!' })).code, 'card-declined');
  assert.equal(thrown(Failure.retryable('m', { code: 'x'.repeat(100) })).code.length, 64);
  assert.equal(thrown(Failure.retryable('m', { code: '!!' })).code, undefined);
});

test('a refusal that nobody catches is retryable, and unrecoverable where the request is wrong', () => {
  for (const [kind, follows] of [['not-granted', 'retryable'], ['over-limit', 'retryable'], ['unavailable', 'retryable'], ['invalid', 'unrecoverable']]) {
    host.refusals['publish.send'] = { kind, message: 'add sinks = ["orders"]' };
    const { err } = outcome(() => { publish.send('orders', {}); return done; });
    assert.deepEqual(err, { message: 'add sinks = ["orders"]', code: kind, kind: { tag: follows }, attributes: [] });
  }
});

test('what a failed call emitted and wrote is taken back, and what it published is not', () => {
  const handler = listener({ routes: { 'T/x': () => {
    emit({ route: 'T/y', json: 1 });
    publish.send('orders', { body: 'x' });
    throw Failure.retryableAfter(5, 'no', { code: 'c', details: { a: 'b' } });
  } } });

  assert.throws(() => deliver(handler, testEvent('T/x')), { name: 'Failure', kind: 'retryable-after', afterMs: 5, code: 'c', message: 'no', details: { a: 'b' } });
  assert.equal(host.emitted.length, 0);
  assert.equal(host.published.length, 1);
});
