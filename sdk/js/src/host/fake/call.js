import { host } from './state-of-host.js';

export function remainingMs() {
  // As QuickJS makes a number of a u32.
  return host.remainingMs | 0;
}
