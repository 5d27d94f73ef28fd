import type { Pairs } from './index.js';

/** What to request. The body is given as `body` or as `json`. */
export interface RequestOptions {
  /** Default: `POST` with a body, else `GET`. */
  method?: string | undefined;
  headers?: Pairs | undefined;
  /** Written as JSON, with the content type `application/json` unless the headers say otherwise. */
  json?: unknown;
  /** Text or bytes. */
  body?: string | Uint8Array | undefined;
  /** When to give up, in milliseconds. Default: nine tenths of what is left of the call, so that it can still say what happened. */
  timeoutMs?: number | undefined;
  /** In a function that takes many events, `{ 'event-id': event.id }` of the one it is for, for an `Idempotency-Key`. */
  attributes?: Pairs | undefined;
}

/** What the server answered. */
export class Response {
  private constructor();
  readonly status: number;
  /** Whether the status is 200 to 299. */
  get ok(): boolean;
  readonly headers: ReadonlyArray<readonly [string, string]>;
  readonly body: Uint8Array;
  /** The first header of this name, in any case of letters; undefined if there is none. */
  header(name: string): string | undefined;
  /** The body as text; throws a TypeError when it is not UTF-8. */
  text(): string;
  /** The body, parsed as JSON; throws a retryable Failure when it is none. `T` is taken on trust. */
  json<T = unknown>(): T;
  /**
   * Returns the response when its status is 200 to 299, and throws a Failure for any other: a retryable one for 408, 425, 429
   * and 500 to 599, which passes; an unrecoverable one for the rest, since the same request would be answered so again.
   */
  requireOk(): this;
}

/**
 * Makes a request and waits for the whole response. Throws a Refusal when there is none: `not-granted` with the line to add to
 * the manifest, `unavailable` when the server cannot be reached or takes too long, `over-limit` when the response is too large,
 * `invalid` when the request itself is wrong. Redirects are not followed: they are responses too.
 *
 * It may be made again when the event is delivered again. The host adds an `Idempotency-Key`, the same on every delivery,
 * unless the headers have one. Needs the origin in `http.allow` of the plugin's manifest.
 */
export function request(url: string, options?: RequestOptions): Response;
