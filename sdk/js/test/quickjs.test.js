// What the SDK does where the engine has no TextEncoder, TextDecoder or console: a fresh copy of the modules, run without them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { host } from '../src/testing.js';

const kept = { TextEncoder: globalThis.TextEncoder, TextDecoder: globalThis.TextDecoder, console: globalThis.console };
let quickjs;

before(async () => {
  delete globalThis.TextEncoder;
  delete globalThis.TextDecoder;
  Uint8Array.fromBase64 ??= (text) => new Uint8Array(Buffer.from(text, 'base64'));
  Uint8Array.prototype.toBase64 ??= function () { return Buffer.from(this).toString('base64'); };
  quickjs = (await import('../src/text.js?quickjs')).utf8;
});

after(() => Object.assign(globalThis, kept));

test('text goes to bytes and back as everywhere', () => {
  for (const text of ['', 'a', 'å€😀\u0000\ufeff', '100 %41 %', '\ufeffbom', 'x'.repeat(100_000)]) {
    const bytes = quickjs.encode(text);
    assert.deepEqual(bytes, new Uint8Array(Buffer.from(text)));
    assert.equal(quickjs.decode(bytes), text);
  }
  assert.equal(quickjs.decode(quickjs.encode('half \ud800')), 'half \ufffd');
});

test('bytes that are not UTF-8 are refused', () => {
  for (const bytes of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf5, 0x80, 0x80, 0x80], [0x61, 0x80]]) {
    assert.throws(() => quickjs.decode(new Uint8Array(bytes)), { name: 'TypeError', message: 'the bytes are not UTF-8' });
  }
});

test('the lines of a console go to the host\'s log', async () => {
  const { installConsole } = await import('../src/console.js');
  host.reset();
  const own = globalThis.console;
  delete globalThis.console;
  try {
    installConsole();
    console.log('a', { b: 1 });
    console.error(new Error('c', { cause: 'd' }));
  } finally {
    globalThis.console = own;
  }
  assert.deepEqual(host.logs.map(({ level, message }) => [level, message]), [['info', 'a {"b":1}'], ['error', 'c: d']]);
});
