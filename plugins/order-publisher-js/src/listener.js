// Publishes a message for every order that was placed.

import { checkSettings, dead, done, listener, log, publish, settings } from 'outbox-sdk';

export const handler = listener({
  routes: {
    'Order/OrderPlaced': onOrderPlaced,
  },
});

// When the plugin is loaded: a manifest with a fault keeps this version from serving.
export const settingsCheck = checkSettings(() => sink());

function onOrderPlaced(event) {
  const order = event.json(toOrder);
  if (order.total < 0) return dead('an order cannot cost less than nothing');

  // The host adds the event's id, by which a consumer tells a message that it has had before: this may run twice for one event.
  publish.send(sink(), {
    subject: 'orders.placed',
    key: event.aggregateId ?? String(order.orderId),
    json: { orderId: order.orderId, total: order.total, placedAt: event.occurredAt.toISOString() },
  });
  log.info(`order ${order.orderId} published`, { order_id: order.orderId, sink: sink() });
  return done;
}

/** The sink that the operator named; a name of `[sinks]` in outbox.toml. */
function sink() {
  const name = settings.get('sink') ?? 'orders';
  if (name.trim() === '') throw new Error('the setting `sink` is empty; leave it out for the sink "orders"');
  return name;
}

// What is thrown here ends the event: the same payload will never be an order. More fields do no harm.
function toOrder(payload) {
  const { order_id: orderId, total } = payload ?? {};
  if (!Number.isSafeInteger(orderId) || orderId <= 0) throw new Error('`order_id` must be a whole number above 0');
  if (!Number.isFinite(total)) throw new Error('`total` must be a number');
  return { orderId, total };
}
