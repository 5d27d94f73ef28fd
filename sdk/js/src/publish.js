// Messages to the brokers and endpoints that the operator named. A message is out when the sink has confirmed it, whatever the
// listener answers afterwards. Needs the sink's name in `publish.sinks` of the plugin's manifest.

import * as host from '#host/publish';

import { ask, Refusal } from './answer.js';
import { content, pairs, text } from './text.js';

/** Sends one message, and waits until the sink has confirmed it. Throws a Refusal when it was not sent. */
export function send(sink, message) {
  const given = toMessage(message);
  ask(() => host.send(text(sink), given));
}

/** Sends messages together. Returns for each, in order, undefined when it was sent, else the Refusal. */
export function sendAll(sink, messages) {
  const given = messages.map(toMessage);
  const results = ask(() => host.sendAll(text(sink), given));
  return results.map(({ tag, val }) => (tag === 'ok' ? undefined : new Refusal(val.kind, val.message)));
}

function toMessage({ subject = '', key, json, body, contentType, headers, attributes }) {
  const made = content(`the message ${subject}`, { json, bytes: body, contentType });
  return {
    subject: text(subject),
    key: key === undefined || key === null ? undefined : text(key),
    contentType: text(made.contentType),
    body: made.bytes,
    headers: pairs(headers),
    attributes: pairs(attributes),
  };
}
