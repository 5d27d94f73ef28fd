// How a listener for QuickJS gets its own imports of WASI, which is HTTP and what that builds on.
//
// componentize-qjs 0.4.5 cannot build such a component: while it evaluates the module it puts its own wasi:io in the place of the one that
// wasi:http was made with, and fails with "mismatched resource types". Under another package name of the same length it leaves them alone,
// and in the component that it made only the names of the imports at the outermost level need to be given back. The version is one
// lower, since the engine imports wasi:io under the contract's own version, and a component must not import one name twice. Hosts
// match both: within 0.2 they look at compatibility, not at equality.

const HIDDEN = 'wasj:';
const VERSION = /^wasi:([a-z-]+\/[a-z-]+)@0\.2\.(\d+)$/;

/** The name under which the engine sees an interface. */
export function hide(name) {
  return name.replace(/^wasi:/, HIDDEN);
}

/** WIT with all of its packages hidden. */
export function hideAll(wit) {
  return wit.replaceAll('wasi:', HIDDEN);
}

/** The component with the names of its imports given back. */
export function reveal(component) {
  const bytes = Buffer.from(component);
  for (const { id, start, end } of sections(bytes)) {
    if (id !== IMPORTS) continue;
    for (let at = bytes.indexOf(HIDDEN, start); at >= 0 && at < end; at = bytes.indexOf(HIDDEN, at + 1)) {
      // A name stands behind its length, which is below 128 and so is one byte.
      const length = bytes[at - 1];
      const [, path, patch] = VERSION.exec(bytes.toString('latin1', at, at + length).replace(HIDDEN, 'wasi:')) ?? [];
      if (path === undefined) throw new Error(`an import at byte ${at} of the component is no interface of WASI 0.2`);
      bytes.write(`wasi:${path}@0.2.${lower(patch)}`, at, length, 'latin1');
    }
  }
  return bytes;
}

// Of the same length, or the name would not fit into its place.
function lower(patch) {
  const less = String(Number(patch) - 1);
  if (Number(patch) < 1 || less.length !== patch.length) throw new Error(`there is no version of the same length below 0.2.${patch}`);
  return less;
}

const IMPORTS = 10;
const PREAMBLE = 8;

function* sections(bytes) {
  for (let at = PREAMBLE; at < bytes.length; ) {
    const id = bytes[at];
    let [size, shift] = [0, 0];
    let byte;
    do {
      byte = bytes[++at];
      size += (byte & 0x7f) * 2 ** shift;
      shift += 7;
    } while (byte & 0x80);
    at += 1;
    yield { id, start: at, end: at + size };
    at += size;
  }
}
