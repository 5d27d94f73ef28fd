#!/usr/bin/env node
// The command line: arguments in, one line about what was built out.

import { parseArgs } from 'node:util';

import { build, BuildError } from '../src/build/index.js';

const HELP = `Builds an outbox listener, written in JavaScript or TypeScript, into a WebAssembly component.

Usage: outbox-js build ENTRY [options]

  ENTRY                   The module with \`export const handler = listener({ … })\`

  -o, --out FILE          The file to write
  -d, --out-dir DIR       The folder to write NAME.wasm into [default: $OUTBOX_PLUGINS_DIR, or else the working directory]
      --engine ENGINE     quickjs or starlingmonkey [default: quickjs]
      --name NAME         The plugin's name [default: the name in package.json, without its scope]
      --plugin-version V  The plugin's version [default: the version in package.json]
      --minify            Shorten the names of the bundle; stacks in failures become hard to read
      --opt-size          QuickJS optimized for size: a third smaller, and slower
      --stub-wasi         Put a trap in the place of every import of WASI: no clock, and a crash leaves no message
      --keep FILE         Keep the bundle, to look at
  -h, --help              Show this

Example: outbox-js build src/listener.ts --out-dir ../plugins
`;

try {
  await main(process.argv.slice(2));
} catch (error) {
  const expected = error instanceof BuildError || error?.code?.startsWith?.('ERR_PARSE_ARGS');
  console.error(`outbox-js: ${expected ? error.message : (error?.stack ?? error)}`);
  process.exitCode = 1;
}

async function main(args) {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      out: { type: 'string', short: 'o' },
      'out-dir': { type: 'string', short: 'd' },
      engine: { type: 'string' },
      name: { type: 'string' },
      'plugin-version': { type: 'string' },
      minify: { type: 'boolean' },
      'opt-size': { type: 'boolean' },
      'stub-wasi': { type: 'boolean' },
      keep: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  });
  const [command, entry, ...rest] = positionals;
  if (values.help || command === undefined) {
    process.stdout.write(HELP);
    return;
  }
  if (command !== 'build') throw new BuildError(`there is no command "${command}"; there is: outbox-js build ENTRY`);
  if (entry === undefined || rest.length > 0) throw new BuildError('build takes one module: outbox-js build ENTRY; see outbox-js --help');

  const built = await build({
    entry,
    out: values.out,
    outDir: values['out-dir'] ?? (process.env.OUTBOX_PLUGINS_DIR || undefined),
    engine: values.engine,
    name: values.name,
    version: values['plugin-version'],
    minify: values.minify,
    optSize: values['opt-size'],
    stubWasi: values['stub-wasi'],
    keep: values.keep,
  });
  const asked = built.imports.map((path) => path.replace(/^outbox:listener\//, '').replace(/@.*/, '')).join(', ');
  console.log(`${built.file}: ${built.name} ${built.version}, ${(built.bytes / 1024 / 1024).toFixed(2)} MiB, asks for ${asked || 'nothing'}`);
}
