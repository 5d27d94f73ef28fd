// Follow-up events, committed together with the answer in one transaction. Needs `emit = true` in the plugin's manifest.

import * as host from '#host/emit';

import { ask } from './answer.js';
import { parseRoute, routeName } from './event.js';
import { milliseconds } from './numbers.js';
import { content, pairs, text } from './text.js';

/** Hands an event to the host, to be written with the answer. Returns its id. Throws a Refusal when the host refuses it. */
export function emit(event) {
  const route = parseRoute(event.route);
  const { bytes, contentType } = content(`the event ${routeName(route)}`, { json: event.json, bytes: event.payload, contentType: event.contentType });
  return ask(() =>
    host.emit({
      route,
      aggregateId: optional(event.aggregateId),
      tenantId: optional(event.tenantId),
      contentType: text(contentType),
      payload: bytes,
      headers: pairs(event.headers),
      id: optional(event.id),
      // The host refuses 0, and means by none what an author means by 0: at once.
      deliverAfterMs: event.deliverAfterMs ? milliseconds('deliverAfterMs', event.deliverAfterMs) : undefined,
      expiresAfterMs: event.expiresAfterMs === undefined ? undefined : milliseconds('expiresAfterMs', event.expiresAfterMs),
      attributes: pairs(event.attributes),
    }),
  );
}

function optional(value) {
  return value === undefined || value === null ? undefined : text(value);
}
