// One delivery of one event.

import { Failure } from './answer.js';
import { fromU32, fromU64 } from './numbers.js';
import { explain, find, utf8 } from './text.js';

/** One delivery of one event. */
export class Event {
  constructor(given) {
    const { aggregateType, eventType } = given.route;
    this.id = given.id;
    this.deliveryId = given.deliveryId;
    this.route = Object.freeze({ aggregateType, eventType });
    // QuickJS says null where there is nothing, StarlingMonkey undefined.
    this.aggregateId = given.aggregateId ?? undefined;
    this.tenantId = given.tenantId ?? undefined;
    this.sequence = fromU64(given.sequence);
    this.occurredAtMs = fromU64(given.occurredAtMs);
    this.attempt = fromU32(given.attempt);
    this.contentType = given.contentType;
    this.payload = given.payload;
    this.headers = given.headers;
    this.attributes = given.attributes;
  }

  /** When it happened. */
  get occurredAt() {
    return new Date(this.occurredAtMs);
  }

  /** The first header of this name, written exactly so; undefined if there is none. */
  header(name) {
    return find(this.headers, name);
  }

  /** The host's note under this key; undefined if there is none. */
  attribute(key) {
    return find(this.attributes, key);
  }

  /** The payload as text. Throws an unrecoverable failure when it is not UTF-8: the same bytes never will be. */
  text() {
    return this.#read(() => utf8.decode(this.payload));
  }

  /** The payload, parsed as JSON and given to `check`, if any. Throws an unrecoverable failure that says what is wrong. */
  json(check) {
    return this.#read(() => {
      const value = JSON.parse(utf8.decode(this.payload));
      return check === undefined ? value : check(value);
    });
  }

  #read(read) {
    try {
      return read();
    } catch (error) {
      if (error instanceof Failure) throw error;
      throw Failure.unrecoverable(`invalid payload: ${explain(error)}`);
    }
  }
}

/** A route as people write it: `Order/OrderPlaced`. */
export function routeName({ aggregateType, eventType }) {
  return `${aggregateType}/${eventType}`;
}

/** The aggregate type of events whose writer named none. */
export const GLOBAL = '__GLOBAL__';

/** Reads `Order/OrderPlaced`; without a slash the aggregate type is `__GLOBAL__`. */
export function parseRoute(route) {
  if (typeof route === 'object' && route !== null) {
    return { aggregateType: checkedName('aggregate type', route.aggregateType, 64), eventType: checkedName('event type', route.eventType, 128) };
  }
  if (typeof route !== 'string') throw new TypeError('a route must be a string such as "Order/OrderPlaced"');
  const slash = route.indexOf('/');
  const aggregateType = slash < 0 ? GLOBAL : route.slice(0, slash);
  return { aggregateType: checkedName('aggregate type', aggregateType, 64), eventType: checkedName('event type', route.slice(slash + 1), 128) };
}

function checkedName(what, name, most) {
  if (typeof name !== 'string' || name === '') throw new TypeError(`a route has an empty ${what}; write it as "Order/OrderPlaced"`);
  if ([...name].length > most) throw new TypeError(`the ${what} "${name}" has more than ${most} characters`);
  if (/[\x00-\x1f\x7f-\x9f]/.test(name) || !name.isWellFormed()) throw new TypeError(`the ${what} ${JSON.stringify(name)} holds a character that no name may hold`);
  return name;
}
