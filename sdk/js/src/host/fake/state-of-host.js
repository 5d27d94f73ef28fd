// What stands in for the host in plain Node: what the operator set, and what the listener did. `outbox-sdk/testing` exports it.

const FRESH = () => ({
  settings: {},
  secrets: {},
  state: new Map(),
  logs: [],
  emitted: [],
  published: [],
  requests: [],
  maxLevel: 'trace',
  remainingMs: 5000,
  refusals: {},
  http: undefined,
});

export const host = {
  ...FRESH(),
  /** As new; to be called before each test. */
  reset() {
    Object.assign(host, FRESH());
  },
};

/** Throws as the engines do when the host refuses. `refusals` has the name of a function, and what it is refused with. */
export function refuse(name) {
  const refusal = host.refusals[name];
  if (refusal !== undefined) throw Object.assign(new Error('[object Object] (see error.payload)'), { payload: refusal });
}

// The checks are those of QuickJS, which traps where one of them throws: an SDK that passes them with the fake passes them there.

export function string(what, value) {
  if (typeof value !== 'string') throw new TypeError(`the engine would trap: ${what} is ${typeof value}, not a string`);
  if (!value.isWellFormed()) throw new TypeError(`the engine would trap: ${what} holds half a surrogate pair`);
  return value;
}

export function optional(check, what, value) {
  return value === undefined || value === null ? undefined : check(what, value);
}

export function u32(what, value) {
  if (typeof value !== 'number') throw new TypeError(`the engine would trap: ${what} is ${typeof value}, not a number`);
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** 31) throw new RangeError(`the engine would change ${what}: ${value}`);
  return value;
}

export function bytes(what, value) {
  if (!(value instanceof Uint8Array)) throw new TypeError(`the engine would trap: ${what} is not a Uint8Array`);
  return value;
}

export function pairs(what, value) {
  if (!Array.isArray(value)) throw new TypeError(`the engine would trap: ${what} is not an array`);
  return value.map(([key, each]) => [string(`a key of ${what}`, key), string(`a value of ${what}`, each)]);
}
