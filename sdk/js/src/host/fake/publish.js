import { bytes, host, optional, pairs, refuse, string } from './state-of-host.js';

export function send(sink, message) {
  const sent = checked(sink, message);
  refuse('publish.send');
  host.published.push(sent);
}

export function sendAll(sink, messages) {
  const sent = messages.map((message) => checked(sink, message));
  return sent.map((message) => {
    const refusal = host.refusals['publish.sendAll'];
    if (refusal !== undefined) return { tag: 'err', val: refusal };
    host.published.push(message);
    return { tag: 'ok' };
  });
}

function checked(sink, { subject, key, contentType, body, headers, attributes }) {
  return {
    sink: string('sink', sink),
    subject: string('subject', subject),
    key: optional(string, 'key', key),
    contentType: string('contentType', contentType),
    body: bytes('body', body),
    headers: pairs('headers', headers),
    attributes: pairs('attributes', attributes),
  };
}
