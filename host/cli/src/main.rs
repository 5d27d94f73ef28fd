//! The `outbox` program: the host, and what an operator needs beside it. Uses the library's public API only.
#![expect(clippy::print_stderr, reason = "messages for people go to stderr; data goes through output.rs")]

mod audit;
#[cfg(all(feature = "mysql", feature = "otel", feature = "postgres"))]
mod bench;
mod candidate;
mod changes;
mod compile;
mod componentize;
mod config;
mod database;
mod dead;
mod described;
mod dev;
mod doctor;
mod dry_run;
mod emit;
mod event;
mod failure;
mod flags;
mod help;
mod host;
mod init;
mod interrupt;
mod logging;
mod man;
mod migrate;
mod names;
mod node;
mod output;
mod place;
mod plugin;
mod plugins;
mod project;
mod purge;
mod refused;
mod remote;
mod replay;
mod rights;
mod route;
mod run;
mod serve;
mod settings;
mod sinks;
mod state;
mod stats;
mod stderr;
mod stop;
mod systemd;
mod telemetry;
mod terminal;
mod testing;
mod token;
mod top;
mod why;
mod wit;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use config::{Checks, Settings};
use failure::{Exit, Failure};
use flags::{Global, HostArgs};
use help::command_line;

/// The transactional outbox whose listeners are sandboxed WebAssembly components
///
/// Services write events into a table inside their own database transaction; this host takes each committed event, calls the
/// plugin that answers its route, and stores the outcome.
#[derive(Parser, Debug)]
#[command(name = "outbox", version, propagate_version = false, max_term_width = 100)]
#[command(
    after_help = "Settings come from outbox.toml, then the environment (OUTBOX_DATABASE_URL, OUTBOX_DISPATCHER__WORKERS=8, …), then \
                        flags; `outbox config show --origin` shows them all.\n\n\
                        Commands that show or change events use the database, or with --url a running host over HTTP.\n\n\
                        Exit codes: 0 ok, 1 failed, 2 usage (or an event that is not valid), 3 not found (an event, a plugin, a \
                        file that an argument names), 4 configuration or token, 5 database or host unreachable (or no tables), \
                        6 partly done, 7 conflict, 8 findings, 130 interrupted"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
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
    /// Empty the tables between two tests of a test suite
    #[command(subcommand)]
    Testing(testing::TestingCommand),
    /// Show the audit log: every manual change, with who made it and why
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Make tokens for the HTTP API
    #[command(subcommand)]
    Token(token::TokenCommand),
    Stats(stats::StatsCommand),
    Top(top::TopCommand),
    Purge(purge::PurgeCommand),
    #[cfg(all(feature = "mysql", feature = "otel", feature = "postgres"))]
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

impl Command {
    /// Whether the command can work through a running host.
    fn can_ask_host(&self) -> bool {
        use dead::DeadCommand as Dead;
        use event::EventCommand as Event;
        use plugin::PluginCommand as Plugin;
        use route::RouteCommand as Route;
        match self {
            Self::Event(command) => !matches!(command, Event::Test { .. }),
            Self::Dead(command) => !matches!(command, Dead::Test(_)),
            Self::Route(command) => {
                matches!(command, Route::List { .. } | Route::Blocked { .. } | Route::Pause(_) | Route::Resume(_))
            }
            Self::Plugin(command) => matches!(command, Plugin::List { .. }),
            Self::Sinks(command) => matches!(command, sinks::SinksCommand::List { .. }),
            Self::Replay(_) | Self::Stats(_) | Self::Top(_) | Self::Purge(_) | Self::Node(_) | Self::Audit(_) => true,
            _ => false,
        }
    }

    /// Whether the command uses sinks or loads plugins, and so needs what their settings refer to.
    fn uses_sinks_or_plugins(&self) -> bool {
        use dead::DeadCommand as Dead;
        use event::EventCommand as Event;
        use plugin::PluginCommand as Plugin;
        match self {
            Self::Dev { .. } | Self::Run { .. } | Self::Doctor(_) => true,
            Self::Sinks(command) => matches!(command, sinks::SinksCommand::Test { .. }),
            Self::Config(command) => matches!(command, settings::ConfigCommand::Check),
            Self::Event(command) => matches!(command, Event::Test { .. }),
            Self::Dead(command) => matches!(command, Dead::Test(_)),
            Self::Plugin(command) => !matches!(
                command,
                Plugin::Build(_)
                    | Plugin::Lock { .. }
                    | Plugin::Rollback { .. }
                    | Plugin::Retry { .. }
                    | Plugin::Componentize { .. }
            ),
            #[cfg(all(feature = "mysql", feature = "otel", feature = "postgres"))]
            Self::Bench(_) => true,
            _ => false,
        }
    }

    /// The role that `outbox doctor --grants` makes for a user who runs this command.
    fn role(&self) -> &'static str {
        use dead::DeadCommand as Dead;
        use event::EventCommand as Event;
        use plugin::PluginCommand as Plugin;
        use route::RouteCommand as Route;
        use state::StateCommand as State;
        match self {
            Self::Event(Event::Emit(_)) => "outbox_writer",
            Self::Migrate(_) | Self::Testing(_) => "outbox_migrator",
            Self::Event(_) | Self::Stats(_) | Self::Top(_) | Self::Node(_) | Self::Audit(_) => "outbox_viewer",
            Self::Dead(Dead::List { .. } | Dead::Show { .. } | Dead::Count { .. } | Dead::Test(_)) => "outbox_viewer",
            Self::Route(Route::List { .. } | Route::Blocked { .. }) | Self::Plugin(Plugin::List { .. }) => "outbox_viewer",
            Self::Sinks(sinks::SinksCommand::List { .. }) => "outbox_viewer",
            Self::State(State::List(_) | State::Get { .. } | State::Usage { .. }) => "outbox_viewer",
            _ => "outbox_dispatcher",
        }
    }
}

fn main() -> ExitCode {
    let colours = terminal::wanted_colours(std::env::args_os());
    terminal::choose_colours(colours);
    let command_line = || command_line().color(colours);
    let matches = command_line().get_matches();
    let cli = Cli::from_arg_matches(&matches);
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
    let _last_lines = stderr::LastLines;
    let ended = runtime.block_on(execute(cli, &words(&matches)));
    // Not waited for: a thread may still sit in a read from a terminal.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.report()),
    }
}

/// The command as typed, without its arguments.
fn words(matches: &ArgMatches) -> String {
    let commands = std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand());
    commands.fold("outbox".to_owned(), |words, (name, _)| format!("{words} {name}"))
}

/// `words` is the command as typed, without its arguments: `outbox route forget`.
async fn execute(cli: Cli, words: &str) -> Result<(), Failure> {
    // These commands need no configuration, and must work with a broken one.
    let (command, global) = match (cli.command, cli.global) {
        (Command::Version, _) => return output::print(concat!("outbox ", env!("CARGO_PKG_VERSION"), "\n")),
        (Command::Completions { shell }, _) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "outbox", &mut script);
            return output::print(&String::from_utf8_lossy(&script));
        }
        (Command::Man(command), _) => return command.run(Cli::command()),
        (Command::Config(settings::ConfigCommand::Schema), _) => return settings::ConfigCommand::schema(),
        (Command::Init(command), global) => return command.run(&global),
        (Command::Wit(command), _) => return command.run(),
        (Command::Token(command), _) => return command.run(),
        (Command::Plugin(plugin::PluginCommand::New(command)), _) => return command.run(),
        other => other,
    };
    let host = match &command {
        Command::Dev { host, .. } | Command::Run { host, .. } => Some(host),
        _ => None,
    };
    let defaults = if matches!(command, Command::Dev { .. }) { dev::defaults() } else { Vec::new() };
    let overrides = flags::overrides(&global, host, defaults)?;
    let settings = load_settings(&command, &global, &overrides, words)?;
    let runs_host = matches!(command, Command::Run { .. } | Command::Dev { .. });
    logging::start(&settings, runs_host);
    if runs_host {
        for warning in settings.layers.warnings() {
            tracing::warn!("{warning}");
        }
    }
    let config = &settings.config;
    if config.remote.as_ref().is_some_and(remote::Remote::shows_token) {
        eprintln!("warning: --url does not use TLS, so the token is readable on the network; use https, or a tunnel");
    }
    let role = command.role();
    let ended = match command {
        // These commands handle signals themselves.
        Command::Dev { command, .. } => command.run(config).await,
        Command::Run { command, .. } => command.run(config).await,
        Command::Top(command) => command.run(config).await,
        Command::Event(command @ (event::EventCommand::Tail(_) | event::EventCommand::Emit(_))) => command.run(config).await,
        Command::Plugin(command @ plugin::PluginCommand::Dev(_)) => command.run(config).await,
        command => tokio::select! {
            ended = once(command, &settings) => ended,
            _ = tokio::signal::ctrl_c() => Err(interrupt::interrupted()),
        },
    };
    ended.map_err(|failure| if failure.is_forbidden() { failure.detail(database::how_to_grant(role, config)) } else { failure })
}

/// The settings of a command, from the files and variables of this machine, or for the host that `--url` names.
fn load_settings(
    command: &Command,
    global: &flags::Global,
    overrides: &[config::Override],
    words: &str,
) -> Result<Settings, Failure> {
    match &global.url {
        Some(url) if command.can_ask_host() => global.settings_of_host(url, overrides),
        Some(_) => {
            let what = format!(
                "`{words}` works on the database or on files of this machine, not over HTTP; leave out --url, and run it where the \
                 database or the files are"
            );
            Err(Failure::new(Exit::Usage, what))
        }
        // The parser would ask for --url, even of a command that refuses it.
        None if global.token.is_some() => {
            let what = if command.can_ask_host() {
                "--token is for --url; add --url URL with the address of the host, or leave out --token".to_owned()
            } else {
                format!("`{words}` works on the database or on files of this machine, and needs no token; leave out --token")
            };
            Err(Failure::new(Exit::Usage, what))
        }
        None => {
            let checks = match command {
                Command::Config(settings::ConfigCommand::Check) => Checks { more: &settings::faults_beside, ..Checks::ALL },
                command if command.uses_sinks_or_plugins() => Checks::ALL,
                _ => Checks::WITHOUT_SINKS_AND_PLUGINS,
            };
            Settings::load(global.config.as_deref(), overrides, checks)
        }
    }
}

/// A command that does one thing and ends.
async fn once(command: Command, settings: &Settings) -> Result<(), Failure> {
    let config = &settings.config;
    match command {
        Command::Config(command) => command.run(settings),
        Command::Migrate(command) => command.run(config).await,
        Command::Testing(command) => command.run(config).await,
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
        #[cfg(all(feature = "mysql", feature = "otel", feature = "postgres"))]
        Command::Bench(command) => command.run(config).await,
        Command::Dev { .. }
        | Command::Run { .. }
        | Command::Top(_)
        | Command::Init(_)
        | Command::Wit(_)
        | Command::Man(_)
        | Command::Token(_)
        | Command::Completions { .. }
        | Command::Compile(_)
        | Command::Version => unreachable!("`execute` runs these commands"),
    }
}
