import { bytes, host, refuse, string } from './state-of-host.js';

export function get(key) {
  string('key', key);
  refuse('state.get');
  return host.state.get(key) ?? null;
}

export function set(key, value) {
  string('key', key);
  bytes('value', value);
  refuse('state.set');
  host.state.set(key, value);
}

function remove(key) {
  string('key', key);
  refuse('state.delete');
  host.state.delete(key);
}

export { remove as delete };
