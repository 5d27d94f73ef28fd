import { host } from './state-of-host.js';

export function send(request) {
  if (host.http === undefined) throw new Error('a test that makes HTTP requests must say what answers them: host.http = (request) => ({ status: 200 })');
  const { status = 200, headers = [], body = new Uint8Array() } = host.http(request) ?? {};
  return {
    status,
    headers: Array.isArray(headers) ? headers : Object.entries(headers),
    body: typeof body === 'string' ? new TextEncoder().encode(body) : body,
  };
}
