// What a listener needs. HTTP is apart, in `outbox-sdk/http`: what a plugin imports is what it asks the operator for.

export { dead, done, Failure, Refusal, retryAfter } from './answer.js';
export * as call from './call.js';
export { emit } from './emit.js';
export { Event } from './event.js';
export { batchListener, checkSettings, listener } from './listener.js';
export * as log from './log.js';
export * as publish from './publish.js';
export * as settings from './settings.js';
export * as state from './state.js';
export { utf8 } from './text.js';
