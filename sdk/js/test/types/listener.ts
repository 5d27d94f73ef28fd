// Never run: the compiler reads it, in its strictest mode. Every line with `@ts-expect-error` must be refused.

import { batchListener, call, checkSettings, dead, done, emit, type Event, Failure, listener, log, publish, Refusal, retryAfter, settings, state, utf8 } from 'outbox-sdk';
import { build } from 'outbox-sdk/build';
import { request } from 'outbox-sdk/http';
import { deliver, deliverAll, host, testEvent } from 'outbox-sdk/testing';

interface Order {
  order_id: number;
  total: number;
}

function toOrder(value: unknown): Order {
  if (typeof value === 'object' && value !== null && 'order_id' in value && typeof value.order_id === 'number') return { order_id: value.order_id, total: 1 };
  throw new Error('`order_id` must be a number');
}

function onOrderPlaced(event: Event) {
  const order = event.json(toOrder);
  const total: number = event.json<Order>().total + order.total;
  const unknown: unknown = event.json();
  // @ts-expect-error an unchecked payload is unknown
  event.json().total;
  // @ts-expect-error the event is the host's
  event.id = 'other';
  if (event.aggregateId === undefined || event.header('x')?.length === 0) return retryAfter(1000);
  log.info('placed', { total, unknown, at: event.occurredAt.toISOString(), left: call.remainingMs() });
  const currency: string | undefined = settings.get('currency');
  const endpoint: string = settings.require('endpoint') + settings.requireSecret('token') + (settings.getAll()['x'] ?? '');
  const id: string = emit({ route: 'Order/OrderShipped', json: order, aggregateId: event.aggregateId, headers: [['a', 'b']] });
  // @ts-expect-error an event needs a route
  emit({ json: 1 });
  const [refusal] = publish.sendAll('orders', [{ subject: currency, body: utf8.encode(endpoint) }]);
  if (refusal?.kind === 'over-limit') throw refusal;
  const count = state.getJson<number>('count') ?? 0;
  state.setJson('count', count + 1);
  state.set('id', id);
  state.delete('old');
  // @ts-expect-error a value is text or bytes
  state.set('id', 5);
  try {
    publish.send('orders', { json: order });
    const { status } = request(endpoint, { json: order, headers: { 'idempotency-key': event.id } }).requireOk();
    if (status === 204) throw Failure.unrecoverable('declined', { code: 'payment-declined', details: { status } });
  } catch (error) {
    if (error instanceof Refusal && error.kind === 'not-granted') return dead(error.message);
    if (error instanceof Refusal && error.kind === 'unavailable') throw Failure.retryableAfter(5000, error);
    throw new Failure('no', { cause: error });
  }
  return done;
}

export const handler = listener({
  name: 'typed',
  routes: {
    'Order/OrderPlaced': onOrderPlaced,
    // @ts-expect-error a promise is no answer
    'Order/OrderPaid': async () => done,
    // @ts-expect-error nothing is no answer
    'Order/OrderArchived': () => {},
  },
});
export const settingsCheck = checkSettings(() => void settings.require('endpoint'));
export const batchHandler = batchListener(handler, { 'Order/OrderPlaced': (events) => events.map((event) => (event.attempt > 1 ? Failure.retryable('x') : done)) });

host.reset();
host.http = ({ url }) => ({ status: url.length, body: 'x' });
host.refusals['publish.send'] = { kind: 'unavailable', message: 'down' };
deliver(handler, testEvent('Order/OrderPlaced', { json: { order_id: 1 }, attempt: 2 })).tag satisfies string;
deliverAll(batchHandler, []).length satisfies number;
build({ entry: 'x.ts', engine: 'quickjs' }).then(({ file }) => file satisfies string);
