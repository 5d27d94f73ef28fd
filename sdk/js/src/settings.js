// What the operator told this plugin: `[config]` and `[secrets]` of its manifest, `NAME.toml` beside `NAME.wasm`.

import * as host from '#host/settings';

import { Failure } from './answer.js';
import { text } from './text.js';

/** The value under a key of `[config]`; undefined when the operator gave none. */
export function get(key) {
  return host.get(text(key)) ?? undefined;
}

/** All of `[config]`, sorted by key. */
export function getAll() {
  return Object.fromEntries(host.getAll());
}

/** The value under a key of `[secrets]`, if the operator gave one. The host blanks it out in log lines and failures. */
export function secret(key) {
  return host.secret(text(key)) ?? undefined;
}

function requireConfig(key) {
  return get(key) ?? missing('setting', 'config', key);
}

/** The value under a key of `[secrets]`, or a retryable failure that says what to add to the manifest. */
export function requireSecret(key) {
  return secret(key) ?? missing('secret', 'secrets', key);
}

export { requireConfig as require };

// Retryable: the operator can add it, and the event waits until then.
function missing(what, section, key) {
  throw Failure.retryable(`the ${what} \`${key}\` is missing; add it to [${section}] of the plugin's manifest`, { code: `missing-${what}` });
}
