import { bytes, host, optional, pairs, refuse, string, u32 } from './state-of-host.js';

export function send({ method, url, headers, body, timeoutMs, attributes }) {
  const request = {
    method: string('method', method),
    url: string('url', url),
    headers: pairs('headers', headers),
    body: bytes('body', body),
    timeoutMs: optional(u32, 'timeoutMs', timeoutMs),
    attributes: pairs('attributes', attributes),
  };
  refuse('http.send');
  host.requests.push(request);
  if (host.http === undefined) throw new Error('a test that makes HTTP requests must say what answers them: host.http = (request) => ({ status: 200 })');
  const { status = 200, headers: answered = [], body: answer = new Uint8Array() } = host.http(request) ?? {};
  return {
    status,
    headers: (Array.isArray(answered) ? answered : Object.entries(answered)).map(([name, value]) => [name.toLowerCase(), value]),
    body: typeof answer === 'string' ? new TextEncoder().encode(answer) : answer,
    attributes: [],
  };
}
