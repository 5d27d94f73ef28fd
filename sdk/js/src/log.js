// Lines for the host's log. The host adds the plugin, its digest and the event's id to every line, and cuts off what is too much.

import * as host from '#host/log';

import { pairs, text } from './text.js';

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace'];

/** Writes one line at a level that is a value. Values of fields that are no strings are written as JSON. */
export function write(level, message, fields) {
  host.write(LEVELS.includes(level) ? level : 'info', text(message), pairs(fields));
}

/** Whether the host keeps lines of this level: spares the work for a line that nobody reads. */
export function enabled(level) {
  const most = host.maxLevel() ?? undefined;
  return most !== undefined && LEVELS.indexOf(level) <= LEVELS.indexOf(most);
}

/** Writes a line about every step. */
export const trace = (message, fields) => write('trace', message, fields);
/** Writes a line with details for finding a fault. */
export const debug = (message, fields) => write('debug', message, fields);
/** Writes a line about what happened. */
export const info = (message, fields) => write('info', message, fields);
/** Writes a line about something unexpected. */
export const warn = (message, fields) => write('warn', message, fields);
/** Writes a line about something that failed. */
export const error = (message, fields) => write('error', message, fields);
