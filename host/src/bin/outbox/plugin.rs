//! `outbox plugin`: the component files that answer events.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use outbox::Route;

use crate::componentize::componentize;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, or_dash, short, shown};
use crate::plugins::{self, LockChange, Locked, PluginReport, PluginState, PluginStatus};

#[derive(Subcommand, Debug)]
pub(crate) enum PluginCommand {
    /// Show what is in the plugins directory, and whether it would serve; exit code 8 when something cannot
    #[command(after_help = "Example:\n  outbox plugin list --plugins plugins --output json")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Look at one component file: what it is, what it answers, what it asks for; exit code 8 when it cannot serve
    #[command(after_help = "Example:\n  outbox plugin check target/plugins/order-mailer.wasm")]
    Check {
        /// The component file
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Pin every plugin of the directory to what lies there now: anything else is not loaded any more
    #[command(
        after_help = "Examples:\n  outbox plugin lock\n  outbox plugin lock plugins --set plugins.lock=/etc/outbox/plugins.lock\n\n\
                            Writes plugins.lock beside the components, or the file of plugins.lock in the configuration: keep it\n\
                            elsewhere where others may write the directory. With --strict, or plugins.strict, a host loads nothing\n\
                            that is not pinned."
    )]
    Lock {
        /// The directory; default that of the configuration
        dir: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Put the version of a plugin that served before back into the directory
    #[command(after_help = "Example:\n  outbox plugin rollback order-mailer")]
    Rollback {
        /// The plugin's name: its file without .wasm
        name: String,
    },
    /// Compile a component again whose compiler had to be stopped: see `outbox plugin list`
    #[command(after_help = "Example:\n  outbox plugin retry order-mailer")]
    Retry {
        /// The plugin's name: its file without .wasm
        name: String,
    },
    /// Make a component of a core module, as C, Go and others compile it; with the adapter where it uses WASI preview 1
    #[command(after_help = "Example:\n  outbox plugin componentize validator.core.wasm --out plugins/validator.wasm")]
    Componentize {
        /// The core module
        module: PathBuf,
        /// The component file to write, whole or not at all
        #[arg(long, short, value_name = "FILE")]
        out: PathBuf,
    },
}

impl PluginCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List { output } => {
                let plugins = plugins::inspect(config)
                    .await
                    .map_err(|error| Failure::new(Exit::Config, "the plugins cannot be listed").because(error))?;
                output::many(
                    &plugins,
                    output.output,
                    |plugins| if plugins.is_empty() { String::new() } else { table(plugins) },
                )?;
                if plugins.is_empty() {
                    eprintln!("{} holds no plugins; copy a component there as NAME.wasm", config.plugins.dir.display());
                }
                // The list has told what is wrong.
                let fault = plugins.iter().any(|plugin| plugin.error.is_some());
                if fault { Err(Failure::silent(Exit::Findings)) } else { Ok(()) }
            }
            Self::Check { file, output } => {
                if !file.exists() {
                    return Err(Failure::new(Exit::NotFound, format!("{} does not exist", file.display())));
                }
                let report = plugins::check(&file, config)
                    .await
                    .map_err(|error| Failure::new(Exit::Findings, "this file cannot serve").because(error))?;
                output::one(&report, output.output, described)
            }
            Self::Lock { dir, output } => {
                let (file, locked) = plugins::lock(dir, config)
                    .map_err(|error| Failure::new(Exit::Findings, "the plugins cannot be pinned").because(error))?;
                output::many(&locked, output.output, |locked| if locked.is_empty() { String::new() } else { pins(locked) })?;
                eprintln!("{} pins {}", file.display(), output::count(locked.len() as u64, "plugin"));
                Ok(())
            }
            Self::Rollback { name } => {
                let digest = plugins::rollback(&name, config).map_err(|error| {
                    Failure::new(Exit::NotFound, format!("the plugin {} cannot be rolled back", shown(&name))).because(error)
                })?;
                let digest: String = digest.chars().take(12).collect();
                output::print(&format!("{} is {digest} again; a running host swaps it in by itself\n", shown(&name)))
            }
            Self::Retry { name } => {
                let lifted = plugins::retry(&name, config).map_err(|error| {
                    Failure::new(Exit::NotFound, format!("the plugin {} cannot be tried again", shown(&name))).because(error)
                })?;
                let rest = humantime::format_duration(config.plugins.rescan_interval);
                eprintln!(
                    "{}",
                    if lifted {
                        format!("{} is compiled again by a running host within {rest}, or when a host starts", shown(&name))
                    } else {
                        format!("nothing kept {} from being compiled", shown(&name))
                    }
                );
                Ok(())
            }
            Self::Componentize { module, out } => {
                let file = |file: &Path, what: &str| Failure::new(Exit::Failed, format!("{} {what}", file.display()));
                let core = std::fs::read(&module).map_err(|error| file(&module, "cannot be read").because(error))?;
                let component = componentize(core).map_err(|reason| file(&module, &format!("makes no component: {reason}")))?;
                let draft = out.with_extension("wasm.part");
                let written = std::fs::write(&draft, &component).and_then(|()| std::fs::rename(&draft, &out));
                written.map_err(|error| file(&out, "cannot be written").because(error))?;
                output::print(&format!("{}: {} bytes\n", out.display(), component.len()))
            }
        }
    }
}

fn table(plugins: &[PluginStatus]) -> String {
    let rows = plugins.iter().map(|plugin| {
        [
            short(&plugin.name, 32),
            or_dash(plugin.version.as_deref()),
            plugin.digest.as_deref().map_or_else(|| "-".to_owned(), |digest| digest.chars().take(12).collect()),
            state(plugin.state).to_owned(),
            routes(&plugin.routes),
        ]
    });
    let mut text = output::table(&["name", "version", "digest", "state", "routes"], rows);
    // A reason is a sentence or two: below the table it can be read, in a column it would tear it apart.
    for plugin in plugins {
        if let Some(error) = &plugin.error {
            text.push_str(&format!("\n{}: {}\n", shown(&plugin.name), lines(error)));
        }
    }
    text
}

fn pins(locked: &[Locked]) -> String {
    let rows = locked.iter().map(|pin| {
        let change = match pin.change {
            LockChange::Added => "added",
            LockChange::Changed => "changed",
            LockChange::Unchanged => "unchanged",
            LockChange::Removed => "removed",
        };
        [short(&pin.name, 32), pin.digest.clone(), change.to_owned()]
    });
    output::table(&["name", "digest", "change"], rows)
}

/// Text that may have several lines, the later ones below the first.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(shown).collect::<Vec<_>>().join("\n  ")
}

fn state(state: PluginState) -> &'static str {
    match state {
        PluginState::Serving => "serving",
        PluginState::ServingOlder => "serving an older version",
        PluginState::Failed => "failed",
        PluginState::Loading => "loading",
        PluginState::Paused => "paused",
    }
}

/// Routes on one line.
pub(crate) fn routes(routes: &[Route]) -> String {
    if routes.is_empty() {
        return "-".to_owned();
    }
    routes.iter().map(|route| shown(&route.to_string()).into_owned()).collect::<Vec<_>>().join(", ")
}

/// One below the other; `-` for none.
fn list(entries: &[String]) -> String {
    let shown: Vec<_> = entries.iter().map(|entry| shown(entry)).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join("\n") }
}

fn described(report: &PluginReport) -> String {
    let limits = &report.limits;
    let isolation = serde_json::to_string(&report.isolation).unwrap_or_default();
    let pairs = [
        ("name", shown(&report.name).into_owned()),
        ("calls itself", format!("{} {}", shown(&report.described_name), shown(&report.version))),
        ("digest", report.digest.clone()),
        ("routes", routes(&report.routes)),
        ("granted", list(&report.granted)),
        ("not granted", list(&report.not_granted)),
        ("imports", if report.imports.is_empty() { "-".to_owned() } else { shown(&report.imports.join(", ")).into_owned() }),
        ("size", format!("{} bytes", report.size_bytes)),
        (if report.was_compiled { "read from cache in" } else { "compiled in" }, format!("{} ms", report.compile.as_millis())),
        ("isolation", isolation.trim_matches('"').to_owned()),
        ("limits", format!("fuel {}, deadline {:?}, memory {}", limits.fuel, limits.deadline, limits.memory)),
    ];
    output::pairs(&pairs)
}
