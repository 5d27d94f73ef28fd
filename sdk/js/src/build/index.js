// Makes a component of a listener's module: bundles it with this SDK, writes a world of exactly what the bundle imports and
// exports, and hands both to an engine. QuickJS would import all of a published world, and what a component imports is what it
// asks the operator for.

import { mkdtemp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';

import { bundle } from './bundle.js';
import { engines } from './engines.js';
import { writeWorld } from './world.js';

/** A fault of the listener's module or of the command, to be shown without a stack. */
export class BuildError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = 'BuildError';
  }
}

/** Builds the component, and puts it in its place whole or not at all. Returns what was built. */
export async function build({ entry, out, outDir, engine = 'quickjs', name, version, minify = false, stubWasi = false, optSize = false, keep }) {
  const componentize = engines[engine];
  if (componentize === undefined) throw new BuildError(`there is no engine "${engine}"; there are ${Object.keys(engines).join(' and ')}`);
  const of = await packageOf(entry);
  const plugin = { name: name ?? of.name, version: version ?? of.version };
  const target = resolve(out ?? join(outDir ?? '.', `${plugin.name}.wasm`));

  const bundled = await bundle({ entry, plugin, minify, error: fault });
  const work = await mkdtemp(join(tmpdir(), 'outbox-js-'));
  try {
    const wit = join(work, 'wit');
    await writeWorld(wit, bundled, fault);
    const script = join(work, `${plugin.name}.js`);
    await writeFile(script, bundled.code);
    if (keep !== undefined) await writeFile(keep, bundled.code);
    const component = await componentize({ wit, script, code: bundled.code, stubWasi, optSize, imports: bundled.imports, error: fault });

    await mkdir(dirname(target), { recursive: true });
    const half = join(dirname(target), `.${basename(target)}.tmp`);
    await writeFile(half, component);
    await rename(half, target);
    return { ...plugin, file: target, bytes: component.length, imports: bundled.imports, exports: bundled.exports };
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

function fault(message, cause) {
  return new BuildError(message, cause === undefined ? undefined : { cause });
}

// The nearest package.json above the entry: a plugin is a package, and its name and version are the plugin's.
async function packageOf(entry) {
  for (let folder = dirname(resolve(entry)); ; folder = dirname(folder)) {
    const file = join(folder, 'package.json');
    const found = await readFile(file, 'utf8').catch(() => undefined);
    if (found !== undefined) {
      const { name, version = '0.0.0' } = parsed(file, found);
      // The scope of a package is no part of a file's name.
      return { name: name?.split('/').pop() ?? basename(entry).replace(/\.[^.]*$/, ''), version };
    }
    if (folder === dirname(folder)) return { name: basename(entry).replace(/\.[^.]*$/, ''), version: '0.0.0' };
  }
}

function parsed(file, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BuildError(`${file} is not JSON: ${error.message}`, { cause: error });
  }
}
