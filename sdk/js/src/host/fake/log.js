import { host, pairs, string } from './state-of-host.js';

export function write(level, message, fields) {
  host.logs.push({ level, message: string('message', message), fields: Object.fromEntries(pairs('fields', fields)) });
}

export function maxLevel() {
  return host.maxLevel;
}
