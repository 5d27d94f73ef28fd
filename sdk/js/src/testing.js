// For unit tests of listeners in plain Node: events that no host delivered, and what stands in for the host.

import { Failure } from './answer.js';
import { parseRoute } from './event.js';
import { host } from './host/fake/state-of-host.js';
import { pairs, utf8 } from './text.js';

export { host };

/** A first delivery on a route, as the host would hand it over. The payload is `null` unless it is given. */
export function testEvent(route, { json, text, payload, headers, attributes, ...fields } = {}) {
  const id = fields.id ?? '01JD7ZS0000000000000000000';
  return {
    id,
    deliveryId: `${id}:1`,
    route: parseRoute(route),
    aggregateId: null,
    tenantId: null,
    sequence: 0,
    occurredAtMs: 1_732_000_000_000,
    attempt: 1,
    contentType: 'application/json',
    ...fields,
    payload: payload ?? utf8.encode(text ?? JSON.stringify(json ?? null)),
    headers: pairs(headers),
    attributes: pairs(attributes),
  };
}

/**
 * Delivers an event as the host does. Returns the answer; throws a Failure when the listener failed, and then takes back what
 * it emitted and wrote to its state, as the host does. What it published stays published.
 */
export function deliver(handler, event) {
  const [state, emitted] = [new Map(host.state), [...host.emitted]];
  try {
    return handler.onEvent(event);
  } catch (record) {
    Object.assign(host, { state, emitted });
    throw failureOf(record);
  }
}

/** Delivers events to a batch handler. Returns for each, in order, its answer, or the Failure in its place. */
export function deliverAll(batchHandler, events) {
  return batchHandler.onEvents(events).map(({ tag, val }) => (tag === 'ok' ? val : failureOf(val)));
}

function failureOf(record) {
  // What is no record of the contract would be a trap: the test is to see it as it is.
  if (typeof record?.kind?.tag !== 'string') return record;
  const { message, code, kind, attributes } = record;
  return new Failure(message, { kind: kind.tag, afterMs: kind.val, code, details: Object.fromEntries(attributes) });
}
