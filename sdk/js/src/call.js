// The call that is under way.

import * as host from '#host/call';

import { fromU32 } from './numbers.js';

/** How many milliseconds are left until the host cuts the call off. */
export function remainingMs() {
  return fromU32(host.remainingMs());
}
