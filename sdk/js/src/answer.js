// How a listener ends a delivery: answers, which it returns, and failures, which it throws.

import { MOST_DELAY_MS, milliseconds } from './numbers.js';
import { explain, pairs, shownType, text } from './text.js';

/** The event is finished. */
export const done = Object.freeze({ tag: 'done' });

/** Not now: deliver the event again after so many milliseconds. Nothing failed, so this is not counted as an attempt. */
export function retryAfter(ms) {
  return Object.freeze({ tag: 'retry-after', val: delay('retryAfter', ms) });
}

/** Never deliver the event again. The reason is kept with it, for people. */
export function dead(reason) {
  return Object.freeze({ tag: 'dead', val: reason === undefined || reason === null ? undefined : text(reason) });
}

// A delay beyond what the host can keep is as good as the longest: the listener is asked again then.
function delay(what, ms) {
  return Math.min(milliseconds(what, ms, Infinity), MOST_DELAY_MS);
}

/** The listener could not do it. To be thrown. */
export class Failure extends Error {
  constructor(message, { kind = 'retryable', afterMs, code, details, cause } = {}) {
    // Made of an error, a failure says what the error and its causes say.
    super(message instanceof Error ? explain(message) : text(message), cause === undefined ? undefined : { cause });
    this.name = 'Failure';
    this.kind = kind;
    this.afterMs = kind === 'retryable-after' ? delay('afterMs', afterMs) : undefined;
    this.code = code === undefined && message instanceof Error ? codeOf(message) : code;
    this.details = details;
    if (message instanceof Error && typeof message.stack === 'string') this.stack = message.stack;
  }

  /** Counted as an attempt; delivered again when the host's retry policy says. */
  static retryable(message, options) {
    return new Failure(message, { ...options, kind: 'retryable' });
  }

  /** Counted as an attempt; delivered again after so many milliseconds. */
  static retryableAfter(ms, message, options) {
    return new Failure(message, { ...options, kind: 'retryable-after', afterMs: ms });
  }

  /** It will never work: the event is dead. */
  static unrecoverable(message, options) {
    return new Failure(message, { ...options, kind: 'unrecoverable' });
  }
}

/** Why the host did not do what it was asked for. */
export class Refusal extends Error {
  constructor(kind, message) {
    super(message);
    this.name = 'Refusal';
    this.kind = kind;
    this.code = kind;
  }
}

/** The refusal in what an import of the host threw; anything else is handed back as it is. */
export function refusalIn(thrown) {
  const refused = thrown?.payload;
  return typeof refused?.kind === 'string' && typeof refused.message === 'string' ? new Refusal(refused.kind, refused.message) : thrown;
}

/** Calls the host, and throws what it refuses as a Refusal. */
export function ask(call) {
  try {
    return call();
  } catch (thrown) {
    throw refusalIn(thrown);
  }
}

/** What a listener function returned, as the contract has it; throws when it is no answer. */
export function toAnswer(value, route) {
  switch (value?.tag) {
    case 'done':
      return { tag: 'done' };
    case 'retry-after':
      return { tag: 'retry-after', val: delay('retryAfter', value.val) };
    case 'dead':
      return { tag: 'dead', val: value.val === undefined || value.val === null ? undefined : text(value.val) };
  }
  if (typeof value?.then === 'function') {
    throw Failure.retryable(
      `the function of ${route} returned a promise; it must not be async. Every call of the host returns its result at once, so there is nothing to wait for`,
    );
  }
  throw Failure.retryable(`the function of ${route} returned ${shownType(value)}; it must return done, retryAfter(ms) or dead(reason)`);
}

/** What a listener threw, as the contract has it. A plain object: QuickJS traps on an Error that leaves it. Never throws. */
export function toFailure(thrown) {
  try {
    if (thrown instanceof Failure) return failureRecord(thrown, kindOf(thrown));
    const kind = { tag: thrown instanceof Refusal && thrown.kind === 'invalid' ? 'unrecoverable' : 'retryable' };
    const where = thrown instanceof Error && !SAYS_ENOUGH.has(thrown.name) ? placeOf(thrown) : undefined;
    const code = codeOf(thrown);
    return { message: text(messageOf(thrown)), code, kind, attributes: where === undefined ? [] : [['at', text(where)]] };
  } catch {
    const message = 'the listener threw something that cannot be shown';
    return { message, code: undefined, kind: { tag: 'retryable' }, attributes: [] };
  }
}

function messageOf(thrown) {
  if (thrown instanceof Error || typeof thrown === 'string' || thrown?.payload !== undefined) return explain(thrown);
  if (thrown === undefined || thrown === null) return `the listener threw ${thrown}`;
  return `the listener threw ${shownType(thrown)}: ${explain(thrown)}`;
}

// The place where the SDK made one of these says nothing to an author.
const SAYS_ENOUGH = new Set(['Refusal']);

function failureRecord(failure, kind) {
  return { message: text(explain(failure)), code: codeOf(failure), kind, attributes: pairs(failure.details) };
}

function kindOf({ kind, afterMs }) {
  if (kind === 'unrecoverable') return { tag: 'unrecoverable' };
  if (kind === 'retryable-after') return { tag: 'retryable-after', val: afterMs };
  return { tag: 'retryable' };
}

const CODE = /^[a-z0-9-]{1,64}$/;

// The host takes no other characters, and a failure must not be lost for its code.
function codeOf(error) {
  const code = error?.code ?? error?.payload?.kind;
  if (typeof code !== 'string' || code === '') return undefined;
  if (CODE.test(code)) return code;
  return code.toLowerCase().replace(/[^a-z0-9]+/g, '-').slice(0, 64).replace(/^-+|-+$/g, '') || undefined;
}

// The innermost frames of the stack, without the message that V8 puts before them.
function placeOf(error) {
  const frames = String(error.stack ?? '')
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('at ') || /^[^\s]*@.+:\d+:\d+$/.test(line))
    .slice(0, 3)
    .map((line) => line.replace(/^at /, '').replace(/[^\s(@]*\/([^/\s]+:\d+:\d+)/, '$1'));
  return frames.length === 0 ? undefined : frames.join(', called by ');
}
