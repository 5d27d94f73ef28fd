/**
 * A record of names and values, or a list of pairs where a name may come twice. Values that are no strings are written as JSON;
 * undefined ones are left out.
 */
export type Pairs = Readonly<Record<string, unknown>> | ReadonlyArray<readonly [string, unknown]>;

/** The pair that picks the listener of an event. */
export interface Route {
  /** The aggregate type: what kind of thing it happened to; `__GLOBAL__` if the writer gave none. */
  readonly aggregateType: string;
  /** What happened. */
  readonly eventType: string;
}

/** One delivery of one event. */
export class Event {
  private constructor();
  /** The same on every delivery: the key for deduplication. */
  readonly id: string;
  /** `id:fence`, with a larger fence on every delivery: lets a downstream refuse a late one. */
  readonly deliveryId: string;
  /** The aggregate type and the event type. */
  readonly route: Route;
  /** The aggregate's id: which thing it happened to, if the writer gave one. */
  readonly aggregateId: string | undefined;
  /** The tenant that the event belongs to, if the writer gave one. */
  readonly tenantId: string | undefined;
  /** The order in which the database took the events in; 0 for an event that was never stored. Exact up to 2^53. */
  readonly sequence: number;
  /** When it happened, in milliseconds since 1970-01-01T00:00:00Z. */
  readonly occurredAtMs: number;
  /** When it happened. */
  get occurredAt(): Date;
  /** 1 on the first attempt; one more after each counted failure. */
  readonly attempt: number;
  /** `application/json` unless the writer said otherwise. */
  readonly contentType: string;
  /** The bytes exactly as the writer wrote them. */
  readonly payload: Uint8Array;
  /** The writer's headers, in the writer's order. */
  readonly headers: ReadonlyArray<readonly [string, string]>;
  /** The host's own notes, such as `max-attempts` and `deferrals`. Later hosts may add keys. */
  readonly attributes: ReadonlyArray<readonly [string, string]>;
  /** The first header of this name, written exactly so; undefined if there is none. */
  header(name: string): string | undefined;
  /** The host's note under this key; undefined if there is none. */
  attribute(key: string): string | undefined;
  /** The payload as text. Throws an unrecoverable failure when it is not UTF-8: the same bytes never will be. */
  text(): string;
  /**
   * The payload, parsed as JSON and then given to `check`, which returns what the listener works with, or throws. Whatever it
   * throws becomes an unrecoverable failure that says what is wrong: the same bytes will never parse.
   */
  json<T>(check: (value: unknown) => T): T;
  /** The payload, parsed as JSON. Throws an unrecoverable failure when it is none. `T` is taken on trust. */
  json<T = unknown>(): T;
}

/** How a listener ends an event, or puts it off. Made by {@link done}, {@link retryAfter} and {@link dead}. */
export type Answer =
  | { readonly tag: 'done' }
  | { readonly tag: 'retry-after'; readonly val: number }
  | { readonly tag: 'dead'; readonly val: string | undefined };

/** The event is finished. */
export const done: Answer;

/** Not now: deliver the event again after so many milliseconds, at most 24 hours. Not counted as an attempt. */
export function retryAfter(ms: number): Answer;

/** Never deliver the event again. The reason is kept with it, for people. */
export function dead(reason?: string): Answer;

/** What goes with a failure. */
export interface FailureOptions {
  /** A short constant for metrics and filters, such as `payment-declined`: 1 to 64 of a-z, 0-9 and dashes. */
  code?: string | undefined;
  /** Details for people; the host keeps up to 16 with the message. */
  details?: Pairs | undefined;
  /** What it came of. Its message is put behind the failure's own, and so are those of its causes. */
  cause?: unknown;
}

/** What follows a failure. */
export type FailureKind = 'retryable' | 'retryable-after' | 'unrecoverable';

/**
 * The listener could not do it. To be thrown. Any other error that is thrown becomes a retryable failure, with the messages of its
 * causes: `sending the mail: connection refused`. To make another failure of it, say so: `throw Failure.unrecoverable(error)`.
 */
export class Failure extends Error {
  /** A retryable failure unless `kind` says otherwise. */
  constructor(message: unknown, options?: FailureOptions & { kind?: FailureKind; afterMs?: number });
  readonly kind: FailureKind;
  /** After how many milliseconds it is tried again; only of the kind `retryable-after`. */
  readonly afterMs: number | undefined;
  readonly code: string | undefined;
  readonly details: Pairs | undefined;
  /** Counted as an attempt; delivered again when the host's retry policy says, until the last attempt. */
  static retryable(message: unknown, options?: FailureOptions): Failure;
  /** Counted as an attempt; delivered again after so many milliseconds, at most 24 hours. */
  static retryableAfter(ms: number, message: unknown, options?: FailureOptions): Failure;
  /** It will never work: the event is dead. */
  static unrecoverable(message: unknown, options?: FailureOptions): Failure;
}

/**
 * Why the host did not do what it was asked for. Where nobody catches it, it becomes a failure with its kind as the code: an
 * unrecoverable one for `invalid`, else a retryable one.
 */
export class Refusal extends Error {
  private constructor();
  /**
   * `not-granted`: the message has the line to add to the plugin's manifest. `invalid`: it will be wrong again. `over-limit`: a
   * limit or a quota is used up. `unavailable`: it may work later.
   */
  readonly kind: 'not-granted' | 'invalid' | 'over-limit' | 'unavailable';
  readonly code: string;
}

/** Answers one event. It must not be async: every call of the host returns its result at once. */
export type RouteFunction = (event: Event) => Answer;

/** What a plugin exports as `handler`. Its functions are for the host; tests use `deliver` of `outbox-sdk/testing`. */
export interface Handler {
  describe(): unknown;
  onEvent(event: unknown): Answer;
}

/** Makes a plugin of functions: `export const handler = listener({ … })`. A route that is not valid fails the build. */
export function listener(plugin: {
  /** For logs and lists. Default: the name in package.json. */
  name?: string;
  /** Default: the version in package.json. */
  version?: string;
  /** By route: `"Order/OrderPlaced"`, or `"Tick"` for events whose writer named no aggregate type. */
  routes: Readonly<Record<string, RouteFunction>>;
  /** What a later host may ask of a plugin. */
  attributes?: Pairs;
}): Handler;

/** What a plugin exports as `batchHandler`. */
export interface BatchHandler {
  onEvents(events: unknown[]): unknown[];
}

/** Answers events of one route, in order: for each an answer, or an error in its place. */
export type BatchFunction = (events: ReadonlyArray<Event>) => ReadonlyArray<Answer | Error>;

/**
 * Makes the export that takes many events in one call: `export const batchHandler = batchListener(handler, { … })`. A function
 * gets the events of its route that follow each other; when it throws, all of them fail. Events of other routes go one by one
 * to `handler`, whose routes must have those of the batches as well: after a call that broke off, and wherever the operator did
 * not set `isolation = "batch"`, the host delivers the events one by one. A message of such a function says for which event it
 * is: `attributes: { 'event-id': event.id }`.
 */
export function batchListener(handler: Handler, routes: Readonly<Record<string, BatchFunction>>): BatchHandler;

/** What a plugin exports as `settingsCheck`. */
export interface SettingsCheck {
  checkSettings(): void;
}

/**
 * Makes the export that looks at the settings when the plugin is loaded:
 * `export const settingsCheck = checkSettings(() => { … })`. An error that is thrown keeps this version from serving; the
 * version before it goes on.
 */
export function checkSettings(check: () => void): SettingsCheck;

/** An event to emit. Its payload is given as `payload` or as `json`. */
export interface NewEvent {
  /** `"Order/OrderShipped"`, or the pair. */
  route: string | Route;
  /** The key for order: events of one aggregate can be delivered in order. */
  aggregateId?: string | undefined;
  /** Default: the tenant of the event that is being answered. */
  tenantId?: string | undefined;
  /** Written as JSON, with the content type `application/json`. */
  json?: unknown;
  /** Text, with the content type `text/plain; charset=utf-8`; or bytes, with `application/octet-stream`. */
  payload?: string | Uint8Array | undefined;
  contentType?: string | undefined;
  headers?: Pairs | undefined;
  /** Default: an id that the host makes. An event whose id is in the outbox already is not emitted again. */
  id?: string | undefined;
  /** Milliseconds from the commit; 0 for at once. */
  deliverAfterMs?: number | undefined;
  /** Milliseconds from now after which nobody wants the event any more, at most 2147483647, which is 24 days. Default: never. */
  expiresAfterMs?: number | undefined;
  /** What a later host may understand; unknown keys are refused. */
  attributes?: Pairs | undefined;
}

/**
 * Hands an event to the host, to be written with the answer in one transaction: both, or neither. Returns its id. Throws a
 * {@link Refusal}. Needs `emit = true` in the plugin's manifest.
 */
export function emit(event: NewEvent): string;

/** A message to publish. Its body is given as `body` or as `json`. */
export interface Message {
  /** Subject, topic, stream, routing key or path, as the sink understands it. Default: the sink's own. */
  subject?: string | undefined;
  /** What keeps messages in order where the sink has partitions. Default: the aggregate id of the event. */
  key?: string | undefined;
  /** Written as JSON, with the content type `application/json`. */
  json?: unknown;
  /** Text, with the content type `text/plain; charset=utf-8`; or bytes, with `application/octet-stream`. */
  body?: string | Uint8Array | undefined;
  contentType?: string | undefined;
  headers?: Pairs | undefined;
  /** What a later host may understand; unknown keys are refused. */
  attributes?: Pairs | undefined;
}

/** Messages to the brokers and endpoints that the operator named. Needs the sink's name in `publish.sinks` of the manifest. */
export namespace publish {
  /** Sends one message, and waits until the sink has confirmed it. Throws a {@link Refusal} when it was not sent. */
  export function send(sink: string, message: Message): void;
  /** Sends messages together. Returns for each, in order, undefined when it was sent, else the {@link Refusal}. */
  export function sendAll(sink: string, messages: ReadonlyArray<Message>): Array<Refusal | undefined>;
}

/**
 * Values that the plugin keeps in the outbox's database, by key, committed together with the answer. When another call has
 * changed a key since this one read it, the host delivers the event again, uncounted. Each function throws a {@link Refusal}.
 * Needs `state = true` in the plugin's manifest.
 */
export namespace state {
  /** The value under a key; undefined when there is none. Sees what this call has written. */
  export function get(key: string): Uint8Array | undefined;
  /** The value under a key as text; undefined when there is none. */
  export function getText(key: string): string | undefined;
  /** The value under a key, parsed as JSON; undefined when there is none. `T` is taken on trust. */
  export function getJson<T = unknown>(key: string): T | undefined;
  /** Puts text or bytes under a key of 1 to 255 bytes. */
  export function set(key: string, value: string | Uint8Array): void;
  /** Puts a value under a key as JSON. */
  export function setJson(key: string, value: unknown): void;
  /** Removes a key, if it is there. */
  function remove(key: string): void;
  export { remove as delete };
}

/** What the operator told this plugin: `[config]` and `[secrets]` of its manifest, `NAME.toml` beside `NAME.wasm`. */
export namespace settings {
  /** The value under a key of `[config]`; undefined when the operator gave none. */
  export function get(key: string): string | undefined;
  /** All of `[config]`, sorted by key. */
  export function getAll(): Record<string, string>;
  /** The value under a key of `[secrets]`, if the operator gave one. The host blanks it out in log lines and failures. */
  export function secret(key: string): string | undefined;
  /** The value under a key of `[secrets]`, or a retryable failure that says what to add to the manifest. */
  export function requireSecret(key: string): string;
  /** The value under a key of `[config]`, or a retryable failure that says what to add to the manifest. */
  function requireConfig(key: string): string;
  export { requireConfig as require };
}

/** The call that is under way. */
export namespace call {
  /** How many milliseconds are left until the host cuts the call off. */
  export function remainingMs(): number;
}

/** The level of a line. */
export type Level = 'trace' | 'debug' | 'info' | 'warn' | 'error';

/** Lines for the host's log. The host adds the plugin, its digest and the event's id, and cuts off what is too much. */
export namespace log {
  /** Writes one line at a level that is a value. */
  export function write(level: Level, message: string, fields?: Pairs): void;
  /** Whether the host keeps lines of this level: spares the work for a line that nobody reads. */
  export function enabled(level: Level): boolean;
  /** Writes a line about every step. */
  export function trace(message: string, fields?: Pairs): void;
  /** Writes a line with details for finding a fault. */
  export function debug(message: string, fields?: Pairs): void;
  /** Writes a line about what happened. */
  export function info(message: string, fields?: Pairs): void;
  /** Writes a line about something unexpected. */
  export function warn(message: string, fields?: Pairs): void;
  /** Writes a line about something that failed. */
  export function error(message: string, fields?: Pairs): void;
}

/** UTF-8 in every engine: QuickJS has neither TextEncoder nor TextDecoder. */
export const utf8: {
  /** The bytes of a string. */
  encode(string: string): Uint8Array;
  /** The string that the bytes are; throws a TypeError when they are not UTF-8. */
  decode(bytes: Uint8Array): string;
};
