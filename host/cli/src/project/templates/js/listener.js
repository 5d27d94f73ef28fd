// Answers {{aggregate_type}}/{{event_type}}.

import { dead, done, listener, log, settings } from 'outbox-sdk';
import { request } from 'outbox-sdk/http';

export const handler = listener({
  routes: {
    '{{aggregate_type}}/{{event_type}}': onEvent,
  },
});

function onEvent(event) {
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
function toPayload(payload) {
  if (typeof payload?.message !== 'string') throw new Error('`message` must be a text');
  return payload;
}
