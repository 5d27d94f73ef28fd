import { bytes, host, optional, pairs, refuse, string, u32 } from './state-of-host.js';

export function emit(envelope) {
  const { route, aggregateId, tenantId, contentType, payload, headers, id, deliverAfterMs, expiresAfterMs, attributes } = envelope;
  const event = {
    route: { aggregateType: string('aggregateType', route.aggregateType), eventType: string('eventType', route.eventType) },
    aggregateId: optional(string, 'aggregateId', aggregateId),
    tenantId: optional(string, 'tenantId', tenantId),
    contentType: string('contentType', contentType),
    payload: bytes('payload', payload),
    headers: pairs('headers', headers),
    id: optional(string, 'id', id),
    deliverAfterMs: optional(u32, 'deliverAfterMs', deliverAfterMs),
    expiresAfterMs: optional(u32, 'expiresAfterMs', expiresAfterMs),
    attributes: pairs('attributes', attributes),
  };
  refuse('emit');
  event.id ??= `emitted-${host.emitted.length + 1}`;
  host.emitted.push(event);
  return event.id;
}
