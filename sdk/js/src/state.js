// Values that the plugin keeps in the outbox's database, by key, committed together with the answer. When another call has
// changed a key since this one read it, the host delivers the event again, uncounted. Needs `state = true` in the plugin's
// manifest.

import * as host from '#host/state';

import { ask, Failure } from './answer.js';
import { bytesOf, explain, text, utf8 } from './text.js';

/** The value under a key; undefined when there is none. Sees what this call has written. Throws a Refusal. */
export function get(key) {
  return ask(() => host.get(text(key))) ?? undefined;
}

/** The value under a key as text; undefined when there is none. */
export function getText(key) {
  return read(key, utf8.decode);
}

/** The value under a key, parsed as JSON; undefined when there is none. */
export function getJson(key) {
  return read(key, (bytes) => JSON.parse(utf8.decode(bytes)));
}

/** Puts text or bytes under a key of 1 to 255 bytes. Throws a Refusal. */
export function set(key, value) {
  if (value === undefined || value === null) throw new TypeError(`the value for the state under \`${key}\` is ${value}; to remove a key use delete`);
  const bytes = bytesOf(`the value for the state under \`${key}\``, value);
  ask(() => host.set(text(key), bytes));
}

/** Puts a value under a key as JSON. Throws a Refusal. */
export function setJson(key, value) {
  const json = JSON.stringify(value);
  if (json === undefined) throw new TypeError(`the value for the state under \`${key}\` cannot be written as JSON`);
  set(key, json);
}

function remove(key) {
  ask(() => host.delete(text(key)));
}

export { remove as delete };

function read(key, parse) {
  const bytes = get(key);
  if (bytes === undefined) return undefined;
  try {
    return parse(bytes);
  } catch (error) {
    throw Failure.unrecoverable(`invalid state under \`${key}\`: ${explain(error)}`);
  }
}
