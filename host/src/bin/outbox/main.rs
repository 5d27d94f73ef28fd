//! The `outbox` program: the host, and what an operator needs beside it. Uses the library's public API only.
#![expect(clippy::print_stderr, reason = "messages for people go to stderr; data goes through output.rs")]

mod audit;
mod bench;
mod candidate;
mod changes;
mod compile;
mod componentize;
mod config;
mod cost;
mod database;
mod dead;
mod dev;
mod doctor;
mod dry_run;
mod emit;
mod event;
mod failure;
mod host;
mod init;
mod logging;
mod man;
mod migrate;
mod names;
mod node;
mod output;
mod pauses;
mod plugin;
mod plugins;
mod project;
mod purge;
mod replay;
mod route;
mod run;
mod serve;
mod settings;
mod sinks;
mod state;
mod stats;
mod systemd;
mod terminal;
mod token;
mod top;
mod why;
mod wit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use config::{Override, Settings};
use failure::{Exit, Failure};

/// The transactional outbox whose listeners are sandboxed WebAssembly components
///
/// Services write events into a table inside their own database transaction; this host takes each committed event, gives it to
/// the one plugin that answers its route, and stores what came of it.
#[derive(Parser, Debug)]
#[command(name = "outbox", version, propagate_version = false, max_term_width = 100)]
#[command(
    after_help = "Settings come from outbox.toml, then the environment (OUTBOX_DATABASE_URL, OUTBOX_DISPATCHER__WORKERS=8, …), then \
                        flags; `outbox config show --origin` shows them all.\n\n\
                        Exit codes: 0 ok, 1 failed, 2 usage, 3 not found (an event, a plugin, a file that an argument names), \
                        4 configuration, 5 database unreachable, 6 partly done, 7 conflict, 8 findings, 130 interrupted"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

/// Flags of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Settings")]
struct Global {
    /// The configuration file; default outbox.toml if it exists [env: OUTBOX_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database: sqlite:outbox.db, postgres://user@host/database, mysql://user@host/database [env: OUTBOX_DATABASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// The plugins directory
    #[arg(long, global = true, value_name = "DIR")]
    plugins: Option<String>,
    /// The log level: error, warn, info, debug, trace, or a list by module [env: OUTBOX_LOG, else RUST_LOG]
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
    /// Log more: -v for debug, -vv for trace
    #[arg(long, short, global = true, action = ArgAction::Count, conflicts_with = "log")]
    verbose: u8,
    /// When to use colours; auto follows NO_COLOR, CLICOLOR_FORCE and TERM, and uses none when the output is not a terminal
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: clap::ColorChoice,
    /// Set any configuration key, like --set poller.interval=1s; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

// Flags of the host. No doc comment: it would become the help of the commands that take them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Host")]
struct HostArgs {
    /// How the host delivers events: single_node, multi_node, ordered, ordered_by_aggregate, writer_only
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// How many events are delivered at the same time
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Load only plugins that `outbox plugin lock` has pinned
    #[arg(long)]
    strict: bool,
    /// Serve the HTTP API on this address, such as 127.0.0.1:8080; `off` for none
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

#[derive(Subcommand, Debug)]
enum Command {
    Dev {
        #[command(flatten)]
        command: dev::DevCommand,
        #[command(flatten)]
        host: HostArgs,
    },
    Run {
        #[command(flatten)]
        command: run::RunCommand,
        #[command(flatten)]
        host: HostArgs,
    },
    Init(init::InitCommand),
    /// Check or show the configuration, or print its JSON Schema
    #[command(subcommand)]
    Config(settings::ConfigCommand),
    /// Apply, revert or inspect the database schema
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    Doctor(doctor::DoctorCommand),
    /// Write, list and inspect events
    #[command(subcommand)]
    Event(event::EventCommand),
    /// Inspect, replay, skip or discard dead events
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    Replay(replay::ReplayCommand),
    /// List, pause, resume or forget routes
    #[command(subcommand)]
    Route(route::RouteCommand),
    /// Create, build, test and inspect plugins
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// List and test sinks: the brokers and endpoints that events go to without a plugin
    #[command(subcommand)]
    Sinks(sinks::SinksCommand),
    /// Inspect or delete the state that plugins keep
    #[command(subcommand)]
    State(state::StateCommand),
    /// List the hosts that share the table
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show the audit trail of manual operations
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Make tokens for the HTTP API
    #[command(subcommand)]
    Token(token::TokenCommand),
    Stats(stats::StatsCommand),
    Top(top::TopCommand),
    Purge(purge::PurgeCommand),
    Bench(bench::BenchCommand),
    Wit(wit::WitCommand),
    Man(man::ManCommand),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  outbox completions bash > ~/.local/share/bash-completion/completions/outbox")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version,
    #[command(name = compile::NAME, hide = true)]
    Compile(compile::CompileCommand),
}

/// How a command's help is laid out, but for its examples.
const HELP: &str = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}";

/// The command line, with the examples of each command as they were written: one that is wrapped cannot be copied.
fn command_line() -> clap::Command {
    with_whole_examples(Cli::command())
}

/// Puts the examples of a command, the first part of what stands below its help, where nothing is wrapped.
fn with_whole_examples(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(with_whole_examples);
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if !below.starts_with("Example") {
        return command;
    }
    let (examples, prose) = below.split_once("\n\n").unwrap_or((&below, ""));
    command.help_template(format!("{HELP}\n\n{examples}{{after-help}}")).after_help(prose.to_owned())
}

fn main() -> ExitCode {
    let colours = terminal::wanted_colours(std::env::args_os());
    terminal::choose_colours(colours);
    let command_line = || command_line().color(colours);
    let cli = Cli::from_arg_matches(&command_line().get_matches());
    let cli = cli.unwrap_or_else(|error| error.format(&mut command_line()).exit());
    terminal::choose_colours(cli.global.color);
    if let Command::Compile(command) = &cli.command {
        return if command.run().is_ok() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Failed as u8) };
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the threads of the program could not be started\n  because: {error}");
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    let _last_lines = logging::LastLines;
    let ended = runtime.block_on(execute(cli));
    // Not waited for: a thread may still sit in a read from a terminal.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.report()),
    }
}

async fn execute(cli: Cli) -> Result<(), Failure> {
    // These need no configuration, and must work where it is broken.
    let (command, global) = match (cli.command, cli.global) {
        (Command::Version, _) => return output::print(concat!("outbox ", env!("CARGO_PKG_VERSION"), "\n")),
        (Command::Completions { shell }, _) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "outbox", &mut script);
            return output::print(&String::from_utf8_lossy(&script));
        }
        (Command::Man(command), _) => return command.run(Cli::command()),
        (Command::Config(settings::ConfigCommand::Schema), _) => return settings::ConfigCommand::schema(),
        (Command::Init(command), _) => return command.run(),
        (Command::Wit(command), _) => return command.run(),
        (Command::Token(command), _) => return command.run(),
        (Command::Plugin(plugin::PluginCommand::New(command)), _) => return command.run(),
        other => other,
    };
    let settings = Settings::load(global.config.as_deref(), &overrides(&global, &command)?)?;
    let hosts = matches!(command, Command::Run { .. } | Command::Dev { .. });
    logging::start(&settings, hosts);
    let config = &settings.config;
    match command {
        // These hear signals themselves.
        Command::Dev { command, .. } => command.run(config).await,
        Command::Run { command, .. } => command.run(config).await,
        Command::Top(command) => command.run(config).await,
        Command::Event(command @ event::EventCommand::Tail(_)) => command.run(config).await,
        Command::Plugin(command @ plugin::PluginCommand::Dev(_)) => command.run(config).await,
        command => tokio::select! {
            ended = once(command, &settings) => ended,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "interrupted")),
        },
    }
}

/// A command that does one thing and ends.
async fn once(command: Command, settings: &Settings) -> Result<(), Failure> {
    let config = &settings.config;
    match command {
        Command::Config(command) => command.run(settings),
        Command::Migrate(command) => command.run(config).await,
        Command::Doctor(command) => command.run(settings).await,
        Command::Event(command) => command.run(config).await,
        Command::Dead(command) => command.run(config).await,
        Command::Replay(command) => command.run(config).await,
        Command::Route(command) => command.run(config).await,
        Command::Plugin(command) => command.run(config).await,
        Command::Sinks(command) => command.run(settings).await,
        Command::State(command) => command.run(config).await,
        Command::Node(command) => command.run(config).await,
        Command::Audit(command) => command.run(config).await,
        Command::Stats(command) => command.run(config).await,
        Command::Purge(command) => command.run(config).await,
        Command::Bench(command) => command.run(config).await,
        // Dealt with before.
        Command::Dev { .. }
        | Command::Run { .. }
        | Command::Top(_)
        | Command::Init(_)
        | Command::Wit(_)
        | Command::Man(_)
        | Command::Token(_)
        | Command::Completions { .. }
        | Command::Compile(_)
        | Command::Version => Ok(()),
    }
}

/// What the flags set.
fn overrides(global: &Global, command: &Command) -> Result<Vec<Override>, Failure> {
    let mut overrides = if matches!(command, Command::Dev { .. }) { dev::defaults() } else { Vec::new() };
    for set in &global.set {
        let Some((key, value)) = set.split_once('=') else {
            return Err(Failure::new(Exit::Usage, format!("--set is `{set}`; write it like --set poller.interval=1s")));
        };
        overrides.push(Override::new(key.trim(), value.trim(), "--set"));
    }
    let host = match command {
        Command::Dev { host, .. } | Command::Run { host, .. } => Some(host),
        _ => None,
    };
    let level = match global.verbose {
        0 => global.log.clone(),
        1 => Some("debug".to_owned()),
        _ => Some("trace".to_owned()),
    };
    let flags = [
        ("database.url", "--database-url", global.database_url.clone()),
        ("plugins.dir", "--plugins", global.plugins.clone()),
        ("log.level", if global.verbose > 0 { "-v" } else { "--log" }, level),
        ("mode", "--mode", host.and_then(|host| host.mode.clone())),
        ("plugins.strict", "--strict", host.and_then(|host| host.strict.then(|| "true".to_owned()))),
        ("dispatcher.workers", "--workers", host.and_then(|host| host.workers.clone())),
        ("http.listen", "--listen", host.and_then(|host| host.listen.clone())),
    ];
    overrides.extend(flags.into_iter().filter_map(|(key, flag, value)| Some(Override::new(key, value?, flag))));
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    /// Every command, with the words that lead to it.
    fn every_command(command: &clap::Command, words: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        visit(words, command);
        for below in command.get_subcommands() {
            every_command(below, &format!("{words} {}", below.get_name()), visit);
        }
    }

    #[test]
    fn every_help_fits_into_100_columns_and_no_example_of_it_is_wrapped() {
        let (mut examples, mut faults) = (0, Vec::new());
        every_command(&Cli::command(), "outbox", &mut |words, command| {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for width in [100, 60] {
                let mut command = with_whole_examples(command.clone()).term_width(width);
                for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                    let long = help.lines().filter(|line| line.chars().count() > 100);
                    faults.extend(long.map(|line| format!("{words} at {width} is wider than 100 columns: {line}")));
                    for example in below.lines().filter(|line| line.starts_with("  ")) {
                        examples += 1;
                        if !help.lines().any(|line| line == example) {
                            faults.push(format!("{words} at {width} has no line: {example}"));
                        }
                    }
                }
            }
        });
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(examples > 40 * 4, "only {examples} examples were looked at");
    }

    #[test]
    fn every_command_that_does_something_has_an_example() {
        every_command(&Cli::command(), "outbox", &mut |words, command| {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let leads_on = command.has_subcommands() || command.is_hide_set() || command.get_name() == "version";
            let has_example = below.starts_with("Example:\n  outbox ") || below.starts_with("Examples:\n  outbox ");
            assert!(leads_on || has_example, "{words} has no example: {below}");
        });
    }

    #[test]
    fn flags_of_the_host_become_settings() {
        let cli = Cli::parse_from([
            "outbox",
            "run",
            "--workers",
            "8",
            "--database-url",
            "sqlite:x.db",
            "--set",
            "poller.interval=1s",
        ]);
        let overrides = overrides(&cli.global, &cli.command).unwrap();
        let keys: Vec<&str> = overrides.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["poller.interval", "database.url", "dispatcher.workers"]);
    }
}
