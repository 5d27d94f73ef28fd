// Answers {{aggregate_type}}/{{event_type}}.

import { type Answer, dead, done, type Event, listener, log, settings } from 'outbox-sdk';
import { request } from 'outbox-sdk/http';

/** What the writer puts into the payload, as JSON. More fields do no harm. */
interface Payload {
  message: string;
}

export const handler = listener({
  routes: {
    '{{aggregate_type}}/{{event_type}}': onEvent,
  },
});

function onEvent(event: Event): Answer {
  const { message } = event.json(toPayload);
  if (message === '') return dead('the message is empty');
  log.info(`${event.route.eventType}: ${message}`, { attempt: event.attempt });

  // Where the manifest names an endpoint, it gets the event. It may get it again: the host sends the event's id along as the key
  // against doing a thing twice.
  const endpoint = settings.get('endpoint');
  if (endpoint !== undefined) {
    request(endpoint, { body: event.payload, headers: { 'content-type': event.contentType } }).requireOk();
  }
  return done;
}

// What is thrown here ends the event: the same payload will never have a message.
function toPayload(payload: unknown): Payload {
  const { message } = (payload ?? {}) as Partial<Payload>;
  if (typeof message !== 'string') throw new Error('`message` must be a text');
  return { message };
}
