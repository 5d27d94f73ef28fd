// The folder of WIT that an engine builds against: the contract and its dependencies, and a world that is made for the plugin.

import { copyFile, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
// A package from a registry carries a copy of the contract. In the repository there is one contract, and a copy only while
// `npm pack` runs.
const INSTALLED = ROOT.split(sep).includes('node_modules');
const PLACES = INSTALLED ? [join(ROOT, 'wit')] : [join(ROOT, '../../wit/0.1.0'), join(ROOT, 'wit')];
const INTERFACE = /^[a-z][a-z0-9-]*:[a-z][a-z0-9-]*\/[a-z][a-z0-9-]*@\d+\.\d+\.\d+$/;

/** The folder with the contract, `listener.wit`. */
export async function contractFolder(error) {
  for (const folder of PLACES) {
    if (await stat(join(folder, 'listener.wit')).catch(() => undefined)) return folder;
  }
  throw error(`the contract, listener.wit, is not in ${PLACES.join(' or ')}; install outbox-sdk again`);
}

/** Writes the folder. */
export async function writeWorld(folder, { imports, exports }, error) {
  const strange = imports.find((path) => !INTERFACE.test(path));
  if (strange !== undefined) throw error(`the listener imports "${strange}", which is not an interface of the host, such as "outbox:listener/log@0.1.0"`);
  const contract = await contractFolder(error);

  const packages = await readdir(join(contract, 'deps'));
  for (const name of packages) {
    await mkdir(join(folder, 'deps', name), { recursive: true });
    for (const file of await readdir(join(contract, 'deps', name))) {
      await copyFile(join(contract, 'deps', name, file), join(folder, 'deps', name, file));
    }
  }
  await mkdir(join(folder, 'deps', 'outbox-listener'), { recursive: true });
  await copyFile(join(contract, 'listener.wit'), join(folder, 'deps', 'outbox-listener', 'listener.wit'));
  const lines = [...imports.map((path) => `  import ${path};`), ...exports.map((path) => `  export ${path};`)];
  await writeFile(join(folder, 'plugin.wit'), `package outbox:plugin;\n\nworld plugin {\n${lines.join('\n')}\n}\n`);
}
