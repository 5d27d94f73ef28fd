// The listener's module, this SDK and all else that it imports, as one module that imports only interfaces of the host.

import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

/** What a module may export, and the interface that this is. */
const EXPORTS = {
  handler: 'outbox:listener/handler@0.1.0',
  batchHandler: 'outbox:listener/batch-handler@0.1.0',
  settingsCheck: 'outbox:listener/settings-check@0.1.0',
};

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Returns the code of the bundle, and the interfaces that it imports and exports. */
export async function bundle({ entry, plugin, minify, error }) {
  const { outputFiles, metafile } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    platform: 'neutral',
    mainFields: ['module', 'main'],
    conditions: ['outbox-component'],
    target: 'es2022',
    charset: 'utf8',
    minify,
    external: ['outbox:*', 'wasi:*'],
    plugins: [thisSdk],
    define: { OUTBOX_PLUGIN_NAME: JSON.stringify(plugin.name), OUTBOX_PLUGIN_VERSION: JSON.stringify(plugin.version) },
    outfile: 'bundle.js',
    logLevel: 'silent',
  }).catch((failure) => {
    throw error(messages(failure), failure);
  });

  const { imports, exports } = metafile.outputs['bundle.js'];
  const found = exports.filter((name) => Object.hasOwn(EXPORTS, name));
  if (!found.includes('handler')) {
    const others = exports.length === 0 ? 'it exports nothing' : `it exports ${exports.join(', ')}`;
    throw error(`${entry} must have the line \`export const handler = listener({ … })\`; ${others}`);
  }
  return {
    code: outputFiles[0].text,
    imports: [...new Set(imports.map(({ path }) => path))].sort(),
    exports: found.map((name) => EXPORTS[name]),
  };
}

// The SDK that builds a listener is the SDK in it, wherever the listener's own folder has another one, or none.
const thisSdk = {
  name: 'this-sdk',
  setup: ({ onResolve, resolve }) =>
    onResolve({ filter: /^outbox-sdk($|\/)/ }, ({ path, kind, pluginData }) =>
      pluginData === thisSdk ? undefined : resolve(path, { kind, resolveDir: ROOT, pluginData: thisSdk }),
    ),
};

function messages(failure) {
  const all = failure.errors ?? [];
  if (all.length === 0) return failure.message;
  return all.map(({ location, text, notes }) => {
    const place = location === null ? '' : `${location.file}:${location.line}:${location.column + 1}: `;
    const hint = /^Could not resolve "(node:|fs|path|crypto|http|https|net|os|child_process)/.test(text)
      ? '; a listener runs in a sandbox without the modules of Node'
      : (notes ?? []).map((note) => `; ${note.text}`).join('');
    return `${place}${text}${hint}`;
  }).join('\n');
}
