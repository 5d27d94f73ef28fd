import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { listener, done } from '../src/index.js';
import { HttpError, request } from '../src/http.js';
import { learnU64 } from '../src/numbers.js';
import { deliver, host, testEvent } from '../src/testing.js';
import { sendOverWasi } from '../src/wasi-http.js';

beforeEach(() => host.reset());

test('a request has a method, a body and its content type', () => {
  const seen = [];
  host.http = (each) => { seen.push(each); };

  request('https://api.example.com');
  request('https://api.example.com/a?b=c#d', { json: { a: 1 }, headers: { 'x-id': 5 } });
  request('HTTP://api.example.com:8080/å b?q=%20', { method: 'put', body: 'x', headers: [['Content-Type', 'text/csv']] });

  assert.deepEqual(seen.map(({ method, scheme, authority, path, headers, body }) => [method, scheme, authority, path, headers, body && Buffer.from(body).toString()]), [
    ['GET', 'HTTPS', 'api.example.com', '/', [], undefined],
    ['POST', 'HTTPS', 'api.example.com', '/a?b=c', [['x-id', '5'], ['content-type', 'application/json']], '{"a":1}'],
    ['PUT', 'HTTP', 'api.example.com:8080', '/%C3%A5%20b?q=%20', [['Content-Type', 'text/csv']], 'x'],
  ]);
});

test('a request ends before the call does', () => {
  const limits = [];
  host.http = ({ timeoutMs }) => { limits.push(timeoutMs); };
  request('https://api.example.com');
  request('https://api.example.com', { timeoutMs: 50 });
  assert.deepEqual(limits, [4500, 50]);
});

test('what is no URL is refused', () => {
  for (const url of ['', 'api.example.com', 'ftp://x', 'https://', 'https://user:pass@x/', undefined]) assert.throws(() => request(url), TypeError);
});

test('a response is read as text and as JSON, and its headers in any case', () => {
  host.http = () => ({ status: 201, headers: { 'Content-Type': 'application/json' }, body: '{"a":"å"}' });
  const response = request('https://api.example.com');

  assert.equal(response.ok, true);
  assert.equal(response.header('content-type'), 'application/json');
  assert.equal(response.header('x'), undefined);
  assert.deepEqual(response.json(), { a: 'å' });
  assert.equal(response.requireOk(), response);

  host.http = () => ({ body: 'no' });
  assert.throws(() => request('https://api.example.com/x?secret=1').json(), { name: 'HttpError', message: 'the body of the response to GET https://api.example.com/x is not JSON' });
});

test('a status that is not 200 to 299 is retryable where it passes, and unrecoverable elsewhere', () => {
  const handler = listener({ routes: { 'T/x': () => { request('https://a.b/c').requireOk(); return done; } } });
  const failure = (response) => {
    host.http = () => response;
    try { deliver(handler, testEvent('T/x')); } catch ({ kind, afterMs, code, message }) { return { kind, afterMs, code, message }; }
  };

  assert.deepEqual(failure({ status: 503 }), { kind: 'retryable', afterMs: undefined, code: 'http-503', message: 'GET https://a.b/c was answered with the status 503' });
  assert.deepEqual(failure({ status: 429, headers: { 'Retry-After': '3' } }).afterMs, 3000);
  assert.deepEqual(failure({ status: 429, headers: { 'Retry-After': 'Wed, 21 Oct 2015 07:28:00 GMT' } }).kind, 'retryable');
  assert.equal(failure({ status: 404 }).kind, 'unrecoverable');
  assert.equal(failure({ status: 302 }).kind, 'unrecoverable');
});

// A wasi:http that keeps count of its resources, and traps as the real one does when a parent goes before its child.
function wasi({ response = {}, handle = () => {}, u64 = 'number' } = {}) {
  const seen = { alive: new Set(), sent: [], finished: false };
  class Resource {
    constructor(parent) { this.parent = parent; seen.alive.add(this); }
    [Symbol.dispose ?? Symbol.for('dispose')]() {
      for (const other of seen.alive) if (other.parent === this) throw new Error(`trap: ${this.constructor.name} went before its ${other.constructor.name}`);
      seen.alive.delete(this);
    }
    given() { seen.alive.delete(this); }
  }
  const err = (payload) => Object.assign(new Error('x'), { payload });
  const checked = (value) => { if (typeof value !== u64) throw new Error(`trap: a u64 that is a ${typeof value}`); return Number(value); };
  class Fields extends Resource {
    static fromList(entries) { const made = new Fields(); made.list = entries; return made; }
    entries() { return this.list; }
  }
  class RequestOptions extends Resource {
    setConnectTimeout(ns) { seen.timeout = checked(ns); }
    setFirstByteTimeout(ns) { checked(ns); }
    setBetweenBytesTimeout(ns) { checked(ns); }
  }
  class OutgoingRequest extends Resource {
    constructor(headers) { super(); headers.given(); seen.headers = headers.list.map(([name, value]) => [name, Buffer.from(value).toString()]); }
    setMethod(method) { seen.method = method; }
    setScheme(scheme) { seen.scheme = scheme; }
    setAuthority(authority) { seen.authority = authority; }
    setPathWithQuery(path) { if (path.includes(' ')) throw new Error('undefined'); seen.path = path; }
    body() { return new OutgoingBody(); }
  }
  class OutputStream extends Resource {
    blockingWriteAndFlush(bytes) {
      if (bytes.length > 4096) throw new Error('trap: more than 4096 bytes');
      if (response.closesEarly) throw err({ tag: 'closed' });
      seen.sent.push(...bytes);
    }
  }
  class OutgoingBody extends Resource {
    write() { return new OutputStream(this); }
    static finish(body) { seen.finished = true; body.given(); }
  }
  class Pollable extends Resource { block() { seen.waited = true; } }
  class Future extends Resource {
    subscribe() { return new Pollable(this); }
    get() { return seen.waited ? { tag: 'ok', val: response.error ? { tag: 'err', val: response.error } : { tag: 'ok', val: new IncomingResponse() } } : null; }
  }
  class IncomingResponse extends Resource {
    status() { return response.status ?? 200; }
    headers() { const made = new Fields(this); made.list = (response.headers ?? []).map(([name, value]) => [name, Uint8Array.from(value)]); return made; }
    consume() { return new IncomingBody(this); }
  }
  class IncomingBody extends Resource { stream() { return new InputStream(this); } }
  class IoError extends Resource { toDebugString() { return 'reset by peer'; } }
  class InputStream extends Resource {
    chunks = [...(response.chunks ?? [])];
    blockingRead(length) {
      checked(length);
      if (this.chunks.length > 0) return Uint8Array.from(this.chunks.shift());
      throw err(response.breaks ? { tag: 'last-operation-failed', val: new IoError() } : { tag: 'closed' });
    }
  }
  const types = { Fields, OutgoingRequest, RequestOptions, OutgoingBody };
  const outgoing = { handle(wanted, options) { wanted.given(); options.given(); handle(err); return new Future(); } };
  return { seen, types, outgoing };
}

function send(fake, fields = {}) {
  let now = 5000;
  return sendOverWasi(fake, {
    method: 'POST', scheme: 'HTTPS', authority: 'a.b', path: '/c', headers: [['x', 'å']], timeoutMs: 1000, maxBodyBytes: 100,
    remainingMs: () => (now -= fields.step ?? 0),
    error: (message, options) => new HttpError(message, options),
    ...fields,
  });
}

test('a request over wasi:http leaves no resource behind', () => {
  for (const u64 of ['number', 'bigint']) {
    learnU64(u64 === 'bigint' ? 0n : 0);
    const fake = wasi({ u64, response: { status: 201, headers: [['y', [0xc3, 0xa5]], ['z', [0xff]]], chunks: [[1], [2, 3]] } });

    const response = send(fake, { body: new Uint8Array(5000) });

    assert.deepEqual(response, { status: 201, headers: [['y', 'å'], ['z', 'ÿ']], body: new Uint8Array([1, 2, 3]) });
    const { seen } = fake;
    assert.deepEqual([seen.method, seen.scheme, seen.authority, seen.path, seen.sent.length, seen.finished, seen.timeout], [{ tag: 'post' }, { tag: 'HTTPS' }, 'a.b', '/c', 5000, true, 1e9]);
    assert.deepEqual(seen.headers, [['x', 'å'], ['content-length', '5000']]);
    assert.equal(seen.alive.size, 0);
  }
  learnU64(0);
});

test('a request without a body, and one of a method of its own', () => {
  const fake = wasi();
  assert.equal(send(fake, { method: 'PURGE' }).body.length, 0);
  assert.deepEqual(fake.seen.method, { tag: 'other', val: 'PURGE' });
  assert.ok(fake.seen.finished);
});

test('a server that answers before it has read the body is heard', () => {
  const fake = wasi({ response: { status: 413, closesEarly: true } });
  assert.equal(send(fake, { body: new Uint8Array(10) }).status, 413);
  assert.equal(fake.seen.alive.size, 0);
});

test('every way in which there is no response has a code, and leaves no resource behind', () => {
  for (const [given, fields, code, said] of [
    [{ response: { error: { tag: 'connection-refused' } } }, {}, 'connection-refused', /connection-refused/],
    [{ response: { error: { tag: 'internal-error', val: 'boom' } } }, {}, 'internal-error', /internal-error: boom/],
    [{ response: { error: { tag: 'HTTP-request-denied' } } }, {}, 'not-granted', /add "https:\/\/a\.b" to http\.allow/],
    [{ handle: (err) => { throw err({ tag: 'HTTP-request-denied' }); } }, {}, 'not-granted', /http\.allow/],
    [{ response: { chunks: [[1]], breaks: true } }, {}, 'connection-broke', /reset by peer/],
    [{ response: { chunks: [new Uint8Array(101)] } }, {}, 'body-too-large', /more than 100 bytes/],
    [{ response: { chunks: [[1], [2], [3]] } }, { step: 400 }, 'timeout', /longer than 1000 ms/],
    [{}, { path: '/a b' }, 'bad-request', /the path is not valid/],
  ]) {
    const fake = wasi(given);
    assert.throws(() => send(fake, fields), { name: 'HttpError', code, message: said });
    if (code !== 'bad-request' && given.handle === undefined) assert.equal(fake.seen.alive.size, 0, code);
  }
});
