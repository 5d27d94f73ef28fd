// The two engines that a listener can be built with. Each evaluates the module once, while it builds, and keeps the memory.

/** By name: takes the bundle and its world, returns the bytes of the component. */
export const engines = { quickjs, starlingmonkey };

async function quickjs({ wit, script, code, stubWasi, optSize, error }) {
  const { componentize } = await import('componentize-qjs');
  const options = { witPath: wit, world: 'plugin', jsSource: code, jsPath: script, sync: true, stubWasi, optSize };
  const { component } = await componentize(options).catch((failure) => {
    throw error(evaluated(failure), failure);
  });
  return component;
}

async function starlingmonkey({ wit, script, stubWasi, optSize, error }) {
  if (stubWasi || optSize) throw error('--stub-wasi and --opt-size are options of the engine quickjs');
  const { componentize } = await import('@bytecodealliance/componentize-js').catch((failure) => {
    throw error('the engine starlingmonkey needs `npm install --save-dev @bytecodealliance/componentize-js@0.22.0`', failure);
  });
  const { component } = await componentize({ sourcePath: script, witPath: wit, worldName: 'plugin', disableFeatures: ['http', 'fetch-event'] }).catch((failure) => {
    throw error(evaluated(failure), failure);
  });
  return component;
}

// The module was evaluated, and either threw or called the host, which is not there yet.
function evaluated(failure) {
  const message = String(failure?.message ?? failure);
  const called = /unknown import: `([^`@]+)@[^`#]*#([^`]+)`/.exec(message);
  if (called !== null) {
    return `the module calls the host (${called[1]}, ${called[2]}) while it is built; call the host only inside the functions of routes`;
  }
  const thrown = /Failed to (?:evaluate user JavaScript module|finish JavaScript module evaluation): ([\s\S]*)/.exec(message);
  return `the module cannot be evaluated: ${(thrown === null ? message : thrown[1]).trim()}`;
}
