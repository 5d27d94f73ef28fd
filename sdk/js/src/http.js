// HTTP requests, one after the other. Needs the origin in `http.allow` of the plugin's manifest.

import * as host from '#host/http';

import { ask, Failure } from './answer.js';
import { remainingMs } from './call.js';
import { milliseconds } from './numbers.js';
import { content, pairs, text, utf8 } from './text.js';

/** What the server answered. */
export class Response {
  constructor({ status, headers, body }, request) {
    this.status = status;
    this.headers = headers;
    this.body = body;
    this.#request = request;
  }

  #request;

  /** Whether the status is 200 to 299. */
  get ok() {
    return this.status >= 200 && this.status <= 299;
  }

  /** The first header of this name, in any case of letters; undefined if there is none. */
  header(name) {
    const lower = name.toLowerCase();
    return this.headers.find(([each]) => each.toLowerCase() === lower)?.[1];
  }

  /** The body as text. */
  text() {
    return utf8.decode(this.body);
  }

  /** The body, parsed as JSON. A server that sends something else may be in trouble that passes, so the failure is retryable. */
  json() {
    try {
      return JSON.parse(utf8.decode(this.body));
    } catch (error) {
      throw Failure.retryable(`invalid response to ${this.#request}: the body is not JSON`, { code: 'bad-response', cause: error });
    }
  }

  /**
   * Returns the response when its status is 200 to 299, and throws a Failure for any other: a retryable one for 408, 425, 429
   * and 500 to 599, which passes; an unrecoverable one for the rest, since the same request would be answered so again.
   */
  requireOk() {
    if (this.ok) return this;
    const message = `${this.#request} was answered with the status ${this.status}`;
    const options = { code: `http-${this.status}` };
    if (![408, 425, 429].includes(this.status) && this.status < 500) throw Failure.unrecoverable(message, options);
    const seconds = this.header('retry-after');
    if (seconds !== undefined && /^\d{1,9}$/.test(seconds)) throw Failure.retryableAfter(Number(seconds) * 1000, message, options);
    throw Failure.retryable(message, options);
  }
}

/** Makes a request and waits for the whole response. Throws a Refusal when there is none. */
export function request(url, { method, headers, body, json, timeoutMs, attributes } = {}) {
  const target = parseUrl(url);
  const given = body !== undefined || json !== undefined;
  const verb = text(method ?? (given ? 'POST' : 'GET')).toUpperCase();
  const entries = pairs(headers);
  const { bytes, contentType } = content('the request', { json, bytes: body });
  if (given && !entries.some(([name]) => name.toLowerCase() === 'content-type')) entries.push(['content-type', contentType]);
  // Ends while the call still has time to say what happened. A call that the host cuts off loses its instance and its reason.
  const limit = timeoutMs === undefined ? Math.floor(remainingMs() * 0.9) : milliseconds('timeoutMs', timeoutMs);

  const wanted = {
    method: verb,
    url: `${target.origin}${target.path}`,
    headers: entries,
    body: given ? bytes : new Uint8Array(),
    timeoutMs: Math.max(1, limit),
    attributes: pairs(attributes),
  };
  // Without the query, which often holds a key.
  return new Response(ask(() => host.send(wanted)), `${verb} ${target.origin}${target.path.split('?', 1)[0]}`);
}

// QuickJS has no URL. What is not allowed in a URL is written as its bytes in percent signs.
function parseUrl(url) {
  const found = /^(https?):\/\/([^/?#]+)([^#]*)/i.exec(text(url));
  if (found === null) throw new TypeError(`"${text(url)}" is not a URL; it must begin with http:// or https:// and a host`);
  const [, scheme, authority, rest] = found;
  if (authority.includes('@')) throw new TypeError('a URL must not hold a user name; send an authorization header');
  const path = rest.startsWith('/') ? rest : `/${rest}`;
  return { origin: `${scheme.toLowerCase()}://${authority}`, path: path.replace(/[^\x21-\x7e]/gu, encodeURIComponent) };
}
