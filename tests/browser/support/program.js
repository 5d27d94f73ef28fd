// The program under test: hosts, each with a database of its own, and what other commands do to it.

import { execFile, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** How long a test waits for what must happen, in milliseconds. */
export const PATIENCE = 30_000;

/** What `cargo xtask test` or the test in Rust says in the environment. */
export function given(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; \`cargo xtask test\` sets it`);
  return value;
}

/** Looks until `look` gives something; the error says the fact. */
export async function eventually(fact, look) {
  const until = Date.now() + PATIENCE;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > until) throw new Error(`expected within ${PATIENCE / 1000} s: ${fact}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A directory with a configuration, plugins and a database. */
export class Place {
  constructor(name, { url, config = '' } = {}) {
    this.path = mkdtempSync(join(given('OUTBOX_TEST_DIRECTORY'), `${name}-`));
    this.url = url ?? `sqlite:${join(this.path, 'outbox.db')}`;
    mkdirSync(join(this.path, 'plugins'));
    writeFileSync(join(this.path, 'outbox.toml'), config);
  }

  /** Puts a sample plugin into the directory of plugins, with a manifest beside it. */
  plugin(name, manifest) {
    copyFileSync(join(given('OUTBOX_TEST_PLUGINS'), `${name}.wasm`), join(this.path, 'plugins', `${name}.wasm`));
    if (manifest) writeFileSync(join(this.path, 'plugins', `${name}.toml`), manifest);
  }

  get environment() {
    return { ...process.env, OUTBOX_DATABASE_URL: this.url, NO_COLOR: '1', RUST_LOG: '' };
  }

  /** Runs a command to its end, which must be a good one; its standard output. */
  run(args, input = '') {
    return new Promise((done, failed) => {
      const options = { cwd: this.path, env: this.environment, maxBuffer: 64 << 20 };
      const child = execFile(given('OUTBOX_TEST_PROGRAM'), args, options, (error, stdout, stderr) =>
        error ? failed(new Error(`outbox ${args.join(' ')}: ${stderr || error.message}`)) : done(stdout),
      );
      child.stdin.on('error', () => {}); // not every command reads it
      child.stdin.end(input);
    });
  }

  /** Writes events, one JSON envelope each. */
  async emit(envelopes) {
    await this.run(['event', 'emit', '--jsonl', '-'], envelopes.map((envelope) => JSON.stringify(envelope)).join('\n'));
  }

  async stats() {
    return JSON.parse(await this.run(['stats', '--output', 'json']));
  }

  /** Looks at the statistics until this number is this, as long as it moves: how fast it does is a matter of the machine. */
  async wait(name, wanted) {
    let [last, until] = [NaN, 0];
    for (;;) {
      const now = (await this.stats())[name];
      if (now === wanted) return;
      if (now !== last) [last, until] = [now, Date.now() + PATIENCE];
      if (Date.now() > until) throw new Error(`expected ${wanted} ${name}, which stays at ${last} for ${PATIENCE / 1000} s`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** Starts a host that serves the pages. */
  async host(args = [], environment = {}) {
    const all = ['run', '--migrate', '--plugins', 'plugins', '--listen', '127.0.0.1:0', ...args];
    const child = spawn(given('OUTBOX_TEST_PROGRAM'), all, {
      cwd: this.path,
      env: { ...this.environment, ...environment },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const host = new Host(child);
    hosts.add(host);
    host.root = await host.said('it says where it listens', (line) => line.match(/^listening on (http:\S+)/)?.[1]);
    await host.said('it is ready', (line) => line === 'ready');
    return host;
  }
}

const hosts = new Set();

/** Stops every host that runs still; for the end of a file of tests. */
export async function stopHosts() {
  await Promise.all([...hosts].map((host) => host.stop()));
}

/** A host that runs. */
export class Host {
  constructor(child) {
    this.child = child;
    this.lines = [];
    this.ended = new Promise((done) => child.on('exit', done));
    createInterface({ input: child.stderr }).on('line', (line) => this.lines.push(line));
  }

  /** Waits for a line of standard error; what `wanted` makes of it. */
  async said(fact, wanted) {
    const look = () => this.lines.map(wanted).find(Boolean);
    return eventually(fact, look).catch((error) => {
      throw new Error(`${error.message}; the host said:\n${this.lines.join('\n')}`);
    });
  }

  /** The address of a page: `dead?event_type=A`. */
  at(path = '') {
    return `${this.root.replace(/\/$/, '')}/${path}`;
  }

  async stop() {
    hosts.delete(this);
    this.child.kill('SIGTERM');
    await this.ended;
  }
}
