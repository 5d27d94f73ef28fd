// Really bundles and builds. What the components then do is tested by the host's own tests, with the sample in plugins/.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { build, BuildError } from '../src/build/index.js';

const root = fileURLToPath(new URL('..', import.meta.url));
let folder;

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'outbox-sdk-build-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(root, join(folder, 'node_modules', 'outbox-sdk'));
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: '@acme/greeter', version: '1.2.3', type: 'module' }));
});

after(() => rmSync(folder, { recursive: true, force: true }));

function write(name, text) {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

const built = (text, options) => build({ entry: write('listener.js', text), outDir: folder, ...options });

test('TypeScript is built into a component that asks for what it uses, and no more', async () => {
  const entry = write('listener.ts', `
    import { checkSettings, done, type Event, listener, log } from 'outbox-sdk';
    export const handler = listener({ routes: { 'User/UserRegistered': (event: Event) => { log.info(event.text() as string); return done; } } });
    export const settingsCheck = checkSettings(() => {});
  `);
  const out = execFileSync(process.execPath, [join(root, 'bin', 'outbox-js.js'), 'build', entry], { cwd: folder, encoding: 'utf8', env: { ...process.env, OUTBOX_PLUGINS_DIR: join(folder, 'plugins') } });

  assert.match(out, /greeter\.wasm: greeter 1\.2\.3, 1\.\d+ MiB, asks for log\n$/);
  assert.deepEqual(readdirSync(join(folder, 'plugins')), ['greeter.wasm']);
  const component = readFileSync(join(folder, 'plugins', 'greeter.wasm'));
  assert.deepEqual([...component.subarray(0, 8)], [0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0], 'a component, and no core module');
  assert.ok(component.includes('outbox:listener/settings-check@0.1.0'));
  for (const unused of ['outbox:listener/emit@', 'wasi:http/']) assert.ok(!component.includes(unused), unused);
  assert.ok(component.includes('"1.2.3"'), 'the version of package.json is the plugin\'s');
});

test('a listener that makes HTTP requests asks for them', async () => {
  const { imports, exports } = await built(`
    import { done, listener, batchListener } from 'outbox-sdk';
    import { request } from 'outbox-sdk/http';
    export const handler = listener({ routes: { x: () => { request('https://a.b').requireOk(); return done; } } });
    export const batchHandler = batchListener(handler, { x: (events) => events.map(() => done) });
  `);
  assert.deepEqual(imports, ['outbox:listener/call@0.1.0', 'outbox:listener/http@0.1.0', 'outbox:listener/log@0.1.0']);
  assert.deepEqual(exports.sort(), ['outbox:listener/batch-handler@0.1.0', 'outbox:listener/handler@0.1.0']);
});

test('a fault of the module fails the build with a sentence', async () => {
  const start = "import { done, listener, settings } from 'outbox-sdk';\n";
  for (const [text, said] of [
    ['export const a = 5;', /must have the line `export const handler = listener\(\{ … \}\)`; it exports a$/],
    ['const a = ;', /listener\.js:1:11: Unexpected ";"$/],
    ["import 'node:fs'; export const handler = 5;", /Could not resolve "node:fs"; a listener runs in a sandbox/],
    ["import 'wasi:odd'; export const handler = 5;", /imports "wasi:odd", which is not an interface/],
    [`${start}export const handler = listener({ routes: { 'A/x': async () => done } });`, /cannot be evaluated: .*the route "A\/x" has an async/],
    [`${start}const name = settings.get('name'); export const handler = listener({ name, routes: { 'A/x': () => done } });`, /calls the host \(outbox:listener\/settings, get\) while it is built/],
  ]) {
    await assert.rejects(built(text), (error) => {
      assert.ok(error instanceof BuildError, error.stack);
      assert.match(error.message, said);
      return true;
    });
  }
  assert.ok(!readdirSync(folder).some((file) => file.endsWith('.tmp')));
});
