// Text on its way to the host and from it. The engine traps on a string with half a surrogate pair and on a value that is no
// string, so everything that is handed to the host as text passes through here. QuickJS has neither TextEncoder nor
// TextDecoder.

/** Any value as a string that the host can take: never throws. */
export function text(value) {
  const string = typeof value === 'string' ? value : shown(value);
  return string.isWellFormed() ? string : string.toWellFormed();
}

/** A record or a list of pairs as the pairs of strings of the contract. Pairs with an undefined value are left out. */
export function pairs(given) {
  if (given === undefined || given === null) return [];
  const entries = Array.isArray(given) ? given : Object.entries(given);
  return entries.filter(([, value]) => value !== undefined).map(([key, value]) => [text(key), text(value)]);
}

/** The first value under a key of a list of pairs; undefined when there is none. */
export function find(list, key) {
  return list.find(([name]) => name === key)?.[1];
}

/** The message of an error with the messages of its causes, as in `sending the mail: connection refused`. Never throws. */
export function explain(error) {
  try {
    return explained(error, 0);
  } catch {
    return 'an error that cannot be shown';
  }
}

const MOST_CAUSES = 16;

function explained(error, depth) {
  if (!(error instanceof Error)) {
    // StarlingMonkey throws what the host refused as an object that is no Error; both engines put the refusal under `payload`.
    if (typeof error?.payload?.message === 'string') return error.payload.message;
    return shown(error).slice(0, 1000);
  }
  let message = String(typeof error.payload?.message === 'string' ? error.payload.message : error.message);
  // The name says what a TypeError or a RangeError is about; the names of our own classes and plain `Error` say nothing.
  if (!PLAIN_NAMES.has(error.name)) message = message ? `${error.name}: ${message}` : String(error.name);
  if (Array.isArray(error.errors) && depth < MOST_CAUSES) {
    message += `: ${error.errors.map((each) => explained(each, depth + 1)).join('; ')}`;
  }
  if (error.cause !== undefined && depth < MOST_CAUSES) message += `: ${explained(error.cause, depth + 1)}`;
  return message === '' ? 'an error without a message' : message;
}

const PLAIN_NAMES = new Set(['Error', 'Failure', 'Refusal']);

function shown(value) {
  try {
    if (value instanceof Error) return explained(value, 0);
    if (typeof value === 'object' && value !== null && !(value instanceof Date)) return JSON.stringify(value) ?? String(value);
    return String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

const encoder = typeof TextEncoder === 'undefined' ? undefined : new TextEncoder();
const decoder = typeof TextDecoder === 'undefined' ? undefined : new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** UTF-8, in every engine. */
export const utf8 = Object.freeze({
  /** The bytes of a string. */
  encode(string) {
    if (encoder) return encoder.encode(string);
    // QuickJS runs these functions as machine code, and a loop over the characters ten times slower, in bytecode.
    return Uint8Array.fromBase64(btoa(unescape(encodeURIComponent(string.toWellFormed()))));
  },

  /** The string that the bytes are; throws a TypeError when they are not UTF-8. */
  decode(bytes) {
    try {
      if (decoder) return decoder.decode(bytes);
      const binary = atob(bytes.toBase64());
      return /[^\x00-\x7f]/.test(binary) ? decodeURIComponent(escape(binary)) : binary;
    } catch {
      throw new TypeError('the bytes are not UTF-8');
    }
  },
});

/** Lists and objects in each other: more than any honest payload has, and fewer than use up a guest's stack. */
const MAX_DEPTH = 256;

/** `JSON.parse`, which QuickJS does by calling itself for each list and object: too many would end the guest, and throw nothing. */
export function parseJson(text) {
  if (isTooDeep(text)) throw new SyntaxError(`JSON of more than ${MAX_DEPTH} lists and objects in each other`);
  return JSON.parse(text);
}

function isTooDeep(text) {
  // Machine code tells most texts apart: none is deeper than it has brackets.
  const most = MAX_DEPTH + 2;
  if (text.split('[', most).length + text.split('{', most).length - 2 <= MAX_DEPTH) return false;
  // Machine code too takes strings away: without escapes, every second piece between quotes lies outside of them.
  const plain = text.includes('\\') ? text.replaceAll('\\\\', '').replaceAll('\\"', '') : text;
  const pieces = plain.split('"');
  let depth = 0;
  for (let i = 0; i < pieces.length; i += 2) {
    const piece = pieces[i];
    for (let at = 0; at < piece.length; at += 1) {
      const code = piece.charCodeAt(at);
      if (code === 0x5b || code === 0x7b) depth += 1;
      else if (code === 0x5d || code === 0x7d) depth -= 1;
      if (depth > MAX_DEPTH) return true;
    }
  }
  return false;
}

/** A body as bytes with its content type, from the three ways in which it may be given. */
export function content(what, { json, bytes, contentType }) {
  if (json !== undefined) {
    if (bytes !== undefined) throw new TypeError(`${what} has both a body and \`json\`; give one of them`);
    const string = JSON.stringify(json);
    if (string === undefined) throw new TypeError(`${what} has a \`json\` that JSON cannot write: ${typeof json}`);
    return { bytes: utf8.encode(string), contentType: contentType ?? 'application/json' };
  }
  if (typeof bytes === 'string') {
    return { bytes: utf8.encode(bytes), contentType: contentType ?? 'text/plain; charset=utf-8' };
  }
  return { bytes: bytesOf(what, bytes), contentType: contentType ?? 'application/octet-stream' };
}

/** The bytes of a string, a typed array or an ArrayBuffer; empty for undefined. */
export function bytesOf(what, value) {
  if (value === undefined || value === null) return new Uint8Array();
  if (typeof value === 'string') return utf8.encode(value);
  // Not `instanceof Uint8Array`: StarlingMonkey hands over arrays of another realm.
  if (Object.prototype.toString.call(value) === '[object Uint8Array]') return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError(`${what} must be a string or a Uint8Array, not ${shownType(value)}; for an object use \`json\``);
}

/** What kind of value it is, for error messages. */
export function shownType(value) {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
