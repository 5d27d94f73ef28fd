import type { Answer, BatchHandler, Failure, Handler, Level, Pairs, Route } from './index.js';

/** What the host refuses a call with. */
export interface RefusalRecord {
  kind: 'not-granted' | 'invalid' | 'over-limit' | 'unavailable';
  message: string;
}

/** An emitted event, as the host got it. */
export interface Emitted {
  route: Route;
  aggregateId: string | undefined;
  tenantId: string | undefined;
  contentType: string;
  payload: Uint8Array;
  headers: Array<[string, string]>;
  id: string;
  deliverAfterMs: number | undefined;
  expiresAfterMs: number | undefined;
  attributes: Array<[string, string]>;
}

/** A published message, as the host got it. */
export interface Published {
  sink: string;
  subject: string;
  key: string | undefined;
  contentType: string;
  body: Uint8Array;
  headers: Array<[string, string]>;
  attributes: Array<[string, string]>;
}

/** A request of `outbox-sdk/http`, as a test's host gets it. */
export interface TestRequest {
  url: string;
  method: string;
  headers: Array<[string, string]>;
  /** Empty when the request had none. */
  body: Uint8Array;
  timeoutMs: number | undefined;
}

/** What a test's host answers. */
export interface TestResponse {
  status?: number;
  headers?: Record<string, string> | Array<[string, string]>;
  body?: string | Uint8Array;
}

/** What stands in for the host in plain Node: what the operator set, and what the listener did. */
export const host: {
  /** `[config]`. */
  settings: Record<string, string>;
  /** `[secrets]`. */
  secrets: Record<string, string>;
  state: Map<string, Uint8Array>;
  logs: Array<{ level: Level; message: string; fields: Record<string, string> }>;
  emitted: Emitted[];
  published: Published[];
  /** The HTTP requests that were made. */
  requests: TestRequest[];
  /** The most detailed level that the host keeps. Default: `trace`. */
  maxLevel: Level | undefined;
  /** Default: 5000. */
  remainingMs: number;
  /** What the host refuses, by function: `{ 'publish.send': { kind: 'not-granted', message: '…' } }`. */
  refusals: Partial<Record<'emit' | 'publish.send' | 'publish.sendAll' | 'state.get' | 'state.set' | 'state.delete' | 'http.send', RefusalRecord>>;
  /** What answers HTTP requests. */
  http: ((request: TestRequest) => TestResponse | undefined) | undefined;
  /** As new; to be called before each test. */
  reset(): void;
};

/** What an event of a test has, besides its route. */
export interface TestEventFields {
  /** Written as JSON. Default: null. */
  json?: unknown;
  text?: string;
  payload?: Uint8Array;
  contentType?: string;
  headers?: Pairs;
  attributes?: Pairs;
  id?: string;
  deliveryId?: string;
  aggregateId?: string;
  tenantId?: string;
  sequence?: number | bigint;
  occurredAtMs?: number | bigint;
  attempt?: number;
}

/** An event as the host would hand it over, for {@link deliver}. */
export interface TestEvent {
  readonly route: Route;
}

/** A first delivery on a route, `"Order/OrderPlaced"`. */
export function testEvent(route: string, fields?: TestEventFields): TestEvent;

/**
 * Delivers an event as the host does. Returns the answer; throws a Failure when the listener failed, and then takes back what
 * it emitted and wrote to its state, as the host does. What it published stays published.
 */
export function deliver(handler: Handler, event: TestEvent): Answer;

/** Delivers events to a batch handler. Returns for each, in order, its answer, or the Failure in its place. */
export function deliverAll(batchHandler: BatchHandler, events: TestEvent[]): Array<Answer | Failure>;
