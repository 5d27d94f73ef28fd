// One request over wasi:http. Every resource is disposed of before the one that it came from, as the contract of wasi:http demands: an
// instance may be kept for many events, and must not keep their connections.

import { toU64 } from './numbers.js';
import { utf8 } from './text.js';

const DISPOSE = Symbol.dispose ?? Symbol.for('dispose');
const METHODS = new Set(['get', 'head', 'post', 'put', 'delete', 'connect', 'options', 'trace', 'patch']);
// The most that wasi:io takes in one blocking write.
const WRITE_BYTES = 4096;
const READ_BYTES = 65536;
const NANOSECONDS = 1_000_000;

export function sendOverWasi(wasi, request) {
  const began = request.remainingMs();
  const left = () => Math.max(1, request.timeoutMs - (began - request.remainingMs()));
  const checkTime = () => {
    if (began - request.remainingMs() >= request.timeoutMs) {
      throw request.error(`it took longer than ${request.timeoutMs} ms`, { code: 'timeout' });
    }
  };

  try {
    const future = start(wasi, request);
    const response = waited(future, request);
    try {
      checkTime();
      return { status: response.status(), headers: headersOf(response), body: read(wasi, response, request, checkTime) };
    } finally {
      dispose(response);
    }
  } catch (thrown) {
    throw toError(thrown, request);
  }

  function start({ types, outgoing }, { method, scheme, authority, path, headers, body }) {
    const entries = headers.map(([name, value]) => [name, utf8.encode(value)]);
    if (body !== undefined) entries.push(['content-length', utf8.encode(String(body.length))]);
    const wanted = new types.OutgoingRequest(must('a header', () => types.Fields.fromList(entries)));
    must('the method', () => wanted.setMethod(METHODS.has(method.toLowerCase()) ? { tag: method.toLowerCase() } : { tag: 'other', val: method }));
    must('the scheme', () => wanted.setScheme({ tag: scheme }));
    must('the host name', () => wanted.setAuthority(authority));
    must('the path', () => wanted.setPathWithQuery(path));

    const options = new types.RequestOptions();
    const limit = toU64(left() * NANOSECONDS);
    must('the time limit', () => {
      options.setConnectTimeout(limit);
      options.setFirstByteTimeout(limit);
      options.setBetweenBytesTimeout(limit);
    });

    const sending = wanted.body();
    const future = outgoing.handle(wanted, options);
    try {
      send(types, sending, body);
    } catch (error) {
      dispose(future);
      throw error;
    }
    return future;
  }

  // What these refuse has no reason with it, or one word.
  function must(what, call) {
    try {
      return call();
    } catch (thrown) {
      const why = thrown?.payload?.tag === undefined ? '' : ` (${thrown.payload.tag})`;
      throw request.error(`${what} is not valid${why}`, { code: 'bad-request' });
    }
  }
}

function send(types, sending, body) {
  if (body !== undefined && body.length > 0) {
    const stream = sending.write();
    try {
      for (let at = 0; at < body.length; at += WRITE_BYTES) stream.blockingWriteAndFlush(body.subarray(at, at + WRITE_BYTES));
    } catch (thrown) {
      // A server may answer before it has read all of a body, and what it says is worth more than that it stopped to listen.
      if (thrown?.payload?.tag !== 'closed') throw thrown;
      dispose(stream);
      dispose(sending);
      return;
    }
    dispose(stream);
  }
  types.OutgoingBody.finish(sending, undefined);
}

function waited(future, request) {
  try {
    let got = future.get();
    while (got === undefined || got === null) {
      const pollable = future.subscribe();
      pollable.block();
      dispose(pollable);
      got = future.get();
    }
    if (got.tag === 'err') throw request.error('its response was taken twice');
    if (got.val.tag === 'err') throw { payload: got.val.val };
    return got.val.val;
  } finally {
    dispose(future);
  }
}

function headersOf(response) {
  const fields = response.headers();
  const entries = fields.entries().map(([name, value]) => [name, latin(value)]);
  dispose(fields);
  return entries;
}

function read({ types }, response, request, checkTime) {
  const body = response.consume();
  const stream = body.stream();
  const chunks = [];
  let length = 0;
  try {
    for (;;) {
      const chunk = stream.blockingRead(toU64(READ_BYTES));
      length += chunk.length;
      if (length > request.maxBodyBytes) {
        throw request.error(`the body of the response has more than ${request.maxBodyBytes} bytes`, { code: 'body-too-large' });
      }
      chunks.push(chunk);
      checkTime();
    }
  } catch (thrown) {
    if (thrown?.payload?.tag !== 'closed') throw thrown;
  } finally {
    dispose(stream);
    dispose(body);
  }
  if (chunks.length === 1) return chunks[0];
  const whole = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

// What a header may hold besides UTF-8 is bytes of which nobody knows the alphabet.
function latin(value) {
  try {
    return utf8.decode(value);
  } catch {
    return Array.from(value, (byte) => String.fromCharCode(byte)).join('');
  }
}

function dispose(resource) {
  resource?.[DISPOSE]?.();
}

// Errors of wasi:http, of headers and of streams are all variants.
function toError(thrown, request) {
  const refused = thrown?.payload;
  if (typeof refused?.tag !== 'string') return thrown;
  if (refused.tag === 'last-operation-failed') {
    const message = refused.val?.toDebugString?.() ?? 'the connection broke';
    dispose(refused.val);
    return request.error(message, { code: 'connection-broke' });
  }
  const detail = typeof refused.val === 'string' ? `${refused.tag}: ${refused.val}` : refused.tag;
  const code = refused.tag.toLowerCase();
  if (code === 'http-request-denied') {
    const origin = `${request.scheme.toLowerCase()}://${request.authority}`;
    return request.error(`the host does not allow it (${detail}); add "${origin}" to http.allow in the plugin's manifest`, { code: 'not-granted' });
  }
  return request.error(detail, { code });
}
