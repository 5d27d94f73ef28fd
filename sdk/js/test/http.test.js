import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { listener, done } from '../src/index.js';
import { request } from '../src/http.js';
import { deliver, host, testEvent } from '../src/testing.js';

beforeEach(() => host.reset());

test('a request has a method, a body and its content type', () => {
  host.http = () => ({});

  request('https://api.example.com');
  request('https://api.example.com/a?b=c#d', { json: { a: 1 }, headers: { 'x-id': 5 } });
  request('HTTP://api.example.com:8080/å b?q=%20', { method: 'put', body: 'x', headers: [['Content-Type', 'text/csv']] });

  assert.deepEqual(host.requests.map(({ method, url, headers, body }) => [method, url, headers, Buffer.from(body).toString()]), [
    ['GET', 'https://api.example.com/', [], ''],
    ['POST', 'https://api.example.com/a?b=c', [['x-id', '5'], ['content-type', 'application/json']], '{"a":1}'],
    ['PUT', 'http://api.example.com:8080/%C3%A5%20b?q=%20', [['Content-Type', 'text/csv']], 'x'],
  ]);
});

test('a request says for which of many events it is', () => {
  host.http = () => ({});
  request('https://api.example.com', { attributes: { 'event-id': testEvent('A/x').id } });
  request('https://api.example.com');
  assert.deepEqual(host.requests.map(({ attributes }) => attributes), [[['event-id', testEvent('A/x').id]], []]);
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
  assert.throws(() => request('https://api.example.com/x?secret=1').json(), { kind: 'retryable', code: 'bad-response', message: 'invalid response to GET https://api.example.com/x: the body is not JSON' });
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

test('what the host refuses keeps its kind, and ends the event as that kind says', () => {
  const handler = listener({ routes: { 'T/x': () => { request('https://a.b/c'); return done; } } });
  const failure = (kind) => {
    host.refusals['http.send'] = { kind, message: 'add "https://a.b" to http.allow' };
    try { deliver(handler, testEvent('T/x')); } catch ({ kind, code, message }) { return [kind, code, message]; }
  };

  assert.throws(() => { failure('unavailable'); request('https://a.b'); }, { name: 'Refusal', kind: 'unavailable' });
  assert.deepEqual(failure('not-granted'), ['retryable', 'not-granted', 'add "https://a.b" to http.allow']);
  assert.equal(failure('invalid')[0], 'unrecoverable');
  assert.equal(failure('over-limit')[0], 'retryable');
  assert.deepEqual(host.requests, [], 'a request that was refused was not made');
});

test('a test that says nothing of HTTP is told what to say', () => {
  assert.throws(() => request('https://a.b'), /host\.http = /);
});
