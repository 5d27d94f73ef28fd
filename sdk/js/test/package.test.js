import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const contract = fileURLToPath(new URL('../../../wit/0.1.0', import.meta.url));

const files = (folder) => readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(folder.length + 1))
  .sort();

test('a package carries the contract as it is in the repository, and leaves no copy there', () => {
  const folder = mkdtempSync(join(tmpdir(), 'outbox-sdk-pack-'));
  try {
    const [{ filename }] = JSON.parse(execFileSync('npm', ['pack', '--json', '--loglevel=error', '--pack-destination', folder], { cwd: root, encoding: 'utf8' }));
    execFileSync('tar', ['-xzf', join(folder, filename), '-C', folder]);

    const packed = join(folder, 'package', 'wit');
    assert.deepEqual(files(packed), files(contract));
    for (const file of files(contract)) assert.deepEqual(readFileSync(join(packed, file)), readFileSync(join(contract, file)), file);
    for (const licence of ['LICENSE-MIT', 'LICENSE-APACHE']) assert.ok(files(join(folder, 'package')).includes(licence));
    assert.ok(!readdirSync(root).includes('wit'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('what is declared is what is exported', async () => {
  for (const entry of ['index', 'http', 'testing', 'build/index']) {
    const declared = readFileSync(join(root, 'src', `${entry}.d.ts`), 'utf8');
    const values = [...declared.matchAll(/^export (?:declare )?(?:function|class|const|namespace) (\w+)/gm)].map(([, name]) => name);
    const module = await import(new URL(`../src/${entry}.js`, import.meta.url));
    assert.deepEqual([...new Set(values)].sort(), Object.keys(module).sort(), entry);

    for (const [, name, body] of declared.matchAll(/^export namespace (\w+) \{\n([\s\S]*?)^\}/gm)) {
      const members = [...body.matchAll(/export function (\w+)|as (\w+) \}/g)].map(([, plain, alias]) => plain ?? alias);
      assert.deepEqual(members.sort(), Object.keys(module[name]).sort(), name);
    }
  }
});

test('every interface of the contract is imported at the contract\'s version', () => {
  const listener = readFileSync(join(contract, 'listener.wit'), 'utf8');
  const [, version] = /^package outbox:listener@([\d.]+);/m.exec(listener);
  const [, world] = /^world listener \{([^}]*)\}/m.exec(listener);
  const wanted = [...world.matchAll(/import ([a-z-]+);/g)].map(([, name]) => `outbox:listener/${name}@${version}`);

  const folder = join(root, 'src', 'host', 'component');
  const found = readdirSync(folder).flatMap((file) => [...readFileSync(join(folder, file), 'utf8').matchAll(/'(outbox:[^']+)'/g)].map(([, name]) => name));
  assert.deepEqual(found.sort(), wanted.sort());
});
