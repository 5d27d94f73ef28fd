import { host, string } from './state-of-host.js';

export function get(key) {
  return own(host.settings, key);
}

export function getAll() {
  return Object.entries(host.settings).sort(([a], [b]) => (a < b ? -1 : 1));
}

export function secret(key) {
  return own(host.secrets, key);
}

function own(values, key) {
  return Object.hasOwn(values, string('key', key)) ? values[key] : null;
}
