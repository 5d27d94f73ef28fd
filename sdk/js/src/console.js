// QuickJS has no console, and libraries call it: there, its lines go to the host's log.

import * as log from './log.js';
import { text } from './text.js';

export function installConsole() {
  if (typeof console !== 'undefined') return;
  const writer = (level) => (...parts) => log[level](parts.map(text).join(' '));
  globalThis.console = {
    trace: writer('trace'),
    debug: writer('debug'),
    log: writer('info'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
  };
}
