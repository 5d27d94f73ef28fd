//! What a developer types: `cargo xtask dev`, `test`, `walk`, `servers`, `plugins`, `languages`, `interleavings`, `bench`.
//!
//! Each command first sees to what it needs, so that the first run on a fresh machine is the same command as every other.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool: it prints")]

mod bench;
mod browser;
mod child;
mod dev;
mod fault;
mod host;
mod install;
mod interleavings;
mod kafka;
mod languages;
mod npm;
mod plugins;
mod promtool;
mod python;
mod servers;
mod test;
mod walk;
mod wasm_target;
mod watch;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use fault::Fault;
use workspace::Workspace;

const HELP: &str = "\
cargo xtask COMMAND [ARGUMENTS]

  dev [ARGUMENTS]      builds the host and the sample plugins, then runs `outbox dev ARGUMENTS`;
                       while it runs, a plugin whose source changes is rebuilt and reloaded
  test [ARGUMENTS]     builds the sample plugins, starts a PostgreSQL, a MariaDB, a NATS, a Redis and a RabbitMQ of
                       its own, then runs the tests: `cargo test --workspace ARGUMENTS`, with `-- --ignored` those that take long; where
                       OUTBOX_TEST_POSTGRES_URL, OUTBOX_TEST_MYSQL_URL, OUTBOX_TEST_NATS_URL, OUTBOX_TEST_REDIS_URL
                       or OUTBOX_TEST_AMQP_URL names a server, or OUTBOX_TEST_PYTHON a Python with drivers for
                       both databases, or OUTBOX_TEST_CHROMIUM a Chromium, or OUTBOX_TEST_TANSU a Tansu (for Kafka),
                       or OUTBOX_TEST_KAFKA_PYTHON a Python with Kafka's library for Java,
                       that one is used; with OUTBOX_TEST_PICTURES=1, the browser tests keep pictures in target/browser/screenshots;
                       with --clippy, clippy checks the workspace while it compiles the tests, and its warnings are errors
  walk [ARGUMENTS]     runs whole hosts under a paused clock, over a store that fails on purpose: 1,000 seeds, all modes; with
                       `--seeds COUNT` as many, with `--seed FIRST` from there on, or that one alone with all that happens
  servers              starts the five servers, prints for a shell what tells the tests of them, and runs until Ctrl-C
  plugins              builds the sample plugins into target/plugins/NAME.wasm
  languages            tests the SDKs of other languages than Rust, and builds their sample plugins into
                       target/languages/plugins/NAME.wasm
  interleavings [ARGUMENTS]
                       plays the queue, the marks, the key queues and the partitions of the host under schedules that
                       are drawn from a seed, 6000 of each check or --iterations N; --help names the other arguments;
                       with --clippy, clippy checks them while it compiles them, and its warnings are errors
  bench [--fast] [ARGUMENTS]
                       builds the host and the plugin noop, then runs `outbox bench ARGUMENTS`; measures the profile
                       `release`, which is what is shipped and takes many minutes to build, or with --fast the
                       profile `fast`, which is optimised too and is built again sooner after a change

What is missing is installed first: the Rust target wasm32-wasip2 by rustup; the servers by apt-get, if you
are root; what the tests need of Python by pip, into target/python; what builds plugins in other languages, into
target/languages; Chromium and Java by apt-get; what drives Chromium by npm, into target/browser; Kafka's library
by pip, into target/kafka.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();

    let done = match command.to_str() {
        Some("dev") => Workspace::find().and_then(|workspace| dev::run(&workspace, &rest)),
        Some("test") => Workspace::find().and_then(|workspace| test::run(&workspace, &rest)),
        Some("walk") => Workspace::find().and_then(|workspace| walk::run(&workspace, &rest)),
        Some("servers") if rest.is_empty() => Workspace::find().and_then(|workspace| servers::run(&workspace)),
        Some("plugins") if rest.is_empty() => Workspace::find().and_then(|workspace| print_plugins(&workspace)),
        Some("languages") if rest.is_empty() => Workspace::find().and_then(|workspace| print_languages(&workspace)),
        Some("interleavings") => Workspace::find().and_then(|workspace| interleavings::run(&workspace, &rest)),
        Some("bench") => Workspace::find().and_then(|workspace| bench::run(&workspace, &rest)),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            eprint!("{HELP}");
            Ok(ExitCode::from(2))
        }
    };
    done.unwrap_or_else(|fault| {
        eprintln!("xtask: {fault}");
        ExitCode::FAILURE
    })
}

fn print_languages(workspace: &Workspace) -> Result<ExitCode, Fault> {
    for component in languages::build_all(workspace)? {
        println!("{}", component.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn print_plugins(workspace: &Workspace) -> Result<ExitCode, Fault> {
    for component in plugins::build_all(workspace)? {
        println!("{}  {} bytes", component.path.display(), component.bytes);
    }
    Ok(ExitCode::SUCCESS)
}
