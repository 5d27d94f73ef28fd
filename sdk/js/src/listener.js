// The whole plugin: what it says of itself, and how an event finds its function. Nothing that is thrown passes this file,
// because the engine traps on it and the event would fail without its reason.

import { Failure, toAnswer, toFailure } from './answer.js';
import { installConsole } from './console.js';
import { Event, parseRoute, routeName } from './event.js';
import { explain, pairs, text } from './text.js';

/** Makes a plugin of functions: `export const handler = listener({ … })`. */
export function listener({ name, version, routes, attributes } = {}) {
  const functions = functionsOf(routes, 'listener');
  const description = {
    // The two names are put in by `outbox-js build`, from the package.json of the plugin.
    name: text(name ?? (typeof OUTBOX_PLUGIN_NAME === 'string' ? OUTBOX_PLUGIN_NAME : 'plugin')),
    version: text(version ?? (typeof OUTBOX_PLUGIN_VERSION === 'string' ? OUTBOX_PLUGIN_VERSION : '0.0.0')),
    routes: [...functions.values()].map(({ route }) => route),
    attributes: pairs(attributes),
  };
  installConsole();

  return Object.freeze({
    describe: () => description,

    onEvent(given) {
      try {
        const event = new Event(given);
        const path = routeName(event.route);
        const found = functions.get(path);
        if (found === undefined) throw Failure.unrecoverable(`this plugin does not answer ${path}`);
        return toAnswer(found.call(event), path);
      } catch (thrown) {
        throw toFailure(thrown);
      }
    },
  });
}

/**
 * Makes the export that takes many events in one call: `export const batchHandler = batchListener(handler, { … })`. A function
 * gets the events of its route that follow each other, and returns for each an answer, or an error in its place. Events of
 * other routes go one by one to `handler`, and so do all events of a call that broke off.
 */
export function batchListener(handler, routes) {
  if (typeof handler?.onEvent !== 'function') throw new TypeError('batchListener needs what listener({ … }) returned as its first argument');
  const functions = functionsOf(routes, 'batchListener');
  // The host delivers events one by one where it is told to, and after a call that broke off.
  const single = new Set(handler.describe().routes.map(routeName));
  for (const path of functions.keys()) {
    if (!single.has(path)) throw new TypeError(`the route "${path}" of batchListener must be among the routes of listener as well`);
  }

  return Object.freeze({
    onEvents(given) {
      const results = [];
      for (let at = 0; at < given.length; ) {
        const path = routeName(given[at].route);
        const found = functions.get(path);
        if (found === undefined) {
          results.push(alone(handler, given[at]));
          at += 1;
          continue;
        }
        // Only neighbours go together: events of one aggregate may have different routes, and keep their order.
        let end = at + 1;
        while (end < given.length && routeName(given[end].route) === path) end += 1;
        results.push(...together(found.call, path, given.slice(at, end)));
        at = end;
      }
      return results;
    },
  });
}

/**
 * Makes the export that looks at the settings when the plugin is loaded:
 * `export const settingsCheck = checkSettings(() => { … })`.
 */
export function checkSettings(check) {
  checkFunction('checkSettings', check);
  return Object.freeze({
    checkSettings() {
      try {
        check();
      } catch (error) {
        throw text(explain(error));
      }
    },
  });
}

function alone(handler, given) {
  try {
    return { tag: 'ok', val: handler.onEvent(given) };
  } catch (failure) {
    return { tag: 'err', val: failure };
  }
}

function together(call, path, given) {
  try {
    const answers = call(given.map((each) => new Event(each)));
    if (!Array.isArray(answers) || answers.length !== given.length) {
      const found = Array.isArray(answers) ? `${answers.length} answers` : 'no array';
      throw Failure.retryable(`the batch function of ${path} got ${given.length} events and returned ${found}; it must return one answer for each`);
    }
    return answers.map((answer) => one(answer, path));
  } catch (thrown) {
    return given.map(() => ({ tag: 'err', val: toFailure(thrown) }));
  }
}

function one(answer, path) {
  try {
    if (answer instanceof Error) throw answer;
    return { tag: 'ok', val: toAnswer(answer, path) };
  } catch (thrown) {
    return { tag: 'err', val: toFailure(thrown) };
  }
}

// Checked when the module is evaluated, which is when the component is built: a fault fails the build.
function functionsOf(routes, what) {
  const entries = Object.entries(routes ?? {});
  if (entries.length === 0) throw new TypeError(`${what} needs at least one route, such as { "Order/OrderPlaced": (event) => done }`);
  const functions = new Map();
  for (const [key, call] of entries) {
    const route = parseRoute(key);
    checkFunction(`the route "${key}"`, call);
    if (functions.has(routeName(route))) throw new TypeError(`the route "${key}" is listed twice`);
    functions.set(routeName(route), { route, call });
  }
  return functions;
}

function checkFunction(what, call) {
  if (typeof call !== 'function') throw new TypeError(`${what} needs a function`);
  const kind = Object.prototype.toString.call(call);
  if (kind === '[object AsyncFunction]' || kind === '[object GeneratorFunction]' || kind === '[object AsyncGeneratorFunction]') {
    throw new TypeError(`${what} has an async or generator function; it must be a plain one. Every call of the host returns its result at once`);
  }
}
