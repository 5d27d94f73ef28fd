/** How to build a component. */
export interface BuildOptions {
  /** The listener's module, JavaScript or TypeScript. */
  entry: string;
  /** The file to write. */
  out?: string;
  /** The folder to write `NAME.wasm` into, where `out` is not given. Default: the working directory. */
  outDir?: string;
  /** Default: `quickjs`. */
  engine?: 'quickjs' | 'starlingmonkey';
  /** Default: the name in the nearest package.json, without its scope. */
  name?: string;
  /** Default: the version in the nearest package.json. */
  version?: string;
  /** Shorten the names of the bundle. Default: no, and stacks stay readable. */
  minify?: boolean;
  /** Put a trap in the place of every import of WASI: `Date.now()` traps then. Default: no. */
  stubWasi?: boolean;
  /** QuickJS optimized for size. Default: no. */
  optSize?: boolean;
  /** A file that keeps the bundle, to look at. */
  keep?: string;
}

/** What was built. */
export interface Built {
  name: string;
  version: string;
  /** The absolute path of the component. */
  file: string;
  bytes: number;
  /** The interfaces that the plugin imports itself; the engine adds its own of WASI. */
  imports: string[];
  /** The interfaces that it exports. */
  exports: string[];
}

/** A fault of the listener's module or of the options, to be shown without a stack. */
export class BuildError extends Error {}

/** Builds the component, and puts it in its place whole or not at all. */
export function build(options: BuildOptions): Promise<Built>;
