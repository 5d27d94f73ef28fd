//! `outbox plugin`: the component files that answer events.

pub(crate) mod list;
mod test;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use outbox::store::Audit;

use crate::audit::Reason;
use crate::changes::{self, Change};
use crate::componentize::componentize;
use crate::config::Config;
use crate::database;
use crate::described::{Inspected, described, inspected};
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, argument, short, shown};
use crate::place::Listed;
use crate::plugins::{self, LoadError, LockChange, Locked, PluginStatus, RolledBack, WherePinned};
use crate::project::{build, dev, new};
use list::{loaded, told};

#[derive(Subcommand, Debug)]
pub(crate) enum PluginCommand {
    /// List the plugins of the running hosts, or of the plugins directory if no host is running; exits with 8 when one does not
    /// serve
    ///
    /// Exits with 5 if the database or the host cannot be reached; the plugins directory is listed then, too, unless --url is given.
    #[command(after_help = "Examples:\n  outbox plugin list\n  outbox plugin list --here --plugins plugins --output json\n\n\
                            Running hosts publish their plugins in the database within a second or two.")]
    List {
        /// List the plugins directory, even if hosts are running
        #[arg(long)]
        here: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Check a component file, or show what a directory of them would change; exits with 8 when a plugin cannot serve
    #[command(
        after_help = "Examples:\n  outbox plugin check target/plugins/order-mailer.wasm\n  outbox plugin check new-plugins\n  \
                            outbox plugin check new-plugins --against plugins\n\n\
                            Shows which routes a component answers and what it asks for. A directory is compared with what \
                            the running hosts serve, or with the plugins directory if no host is running or the database cannot be reached."
    )]
    Check {
        /// The component file, or a directory of component files
        file: PathBuf,
        /// Compare with this directory instead of with the running hosts
        #[arg(long, value_name = "DIR")]
        against: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    Test(test::Test),
    New(new::New),
    Build(build::Build),
    Dev(dev::Dev),
    /// Show the structure of a component file: world, imports, exports, core modules, memories, sections, and its own description
    #[command(after_help = "Example:\n  outbox plugin inspect plugins/order-mailer.wasm --bytes-only")]
    Inspect {
        /// The component file
        file: PathBuf,
        /// Only read the file: do not compile it or ask the component to describe itself
        #[arg(long)]
        bytes_only: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Pin every plugin in the directory to its current version; hosts then refuse to load any other version of them
    #[command(
        after_help = "Examples:\n  outbox plugin lock\n  outbox plugin lock plugins --set plugins.lock=/etc/outbox/plugins.lock\n\n\
                            Writes plugins.lock beside the components, or to the file that the setting plugins.lock names: use that if \
                            others may write to the directory. With --strict or plugins.strict, a host loads only pinned plugins."
    )]
    Lock {
        /// The directory; default the configured plugins directory
        dir: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Restore the version of a plugin that served before
    #[command(
        after_help = "Examples:\n  outbox plugin rollback order-mailer\n  outbox plugin rollback order-mailer --lock --reason 'it mails twice'\n\n\
                            If the plugin is pinned to another version, nothing changes unless you add --lock."
    )]
    Rollback {
        /// The plugin's name: its file name without .wasm
        name: String,
        /// Pin the plugin to the restored version, if it is pinned to another
        #[arg(long)]
        lock: bool,
        #[command(flatten)]
        reason: Reason,
    },
    /// Allow a quarantined component, whose compilation had to be stopped, to be compiled again
    #[command(after_help = "Example:\n  outbox plugin retry order-mailer")]
    Retry {
        /// The plugin's name: its file name without .wasm
        name: String,
    },
    /// Turn a core module, as compilers for C and Go make it, into a component; adapts WASI preview 1 if needed
    #[command(after_help = "Example:\n  outbox plugin componentize validator.core.wasm --out plugins/validator.wasm")]
    Componentize {
        /// The core module
        module: PathBuf,
        /// The component file to write
        #[arg(long, short, value_name = "FILE")]
        out: PathBuf,
    },
}

impl PluginCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List { here, output } => list::list(here, output, config).await,
            Self::Inspect { file, bytes_only, output } => inspect(&file, bytes_only, output, config).await,
            Self::Check { file, against, output } if file.is_dir() => {
                check_directory(&file, against.as_deref(), output, config).await
            }
            Self::Check { file, output, .. } => check(&file, output, config).await,
            Self::New(command) => command.run(),
            Self::Build(command) => command.run(config).await,
            Self::Dev(command) => command.run(config).await,
            Self::Test(test) => test.run(config).await,
            Self::Lock { dir: Some(dir), .. } if !dir.exists() => Err(absent(&dir)),
            Self::Lock { dir, output } => lock(dir, output, config),
            Self::Rollback { name, lock, reason } => {
                let pinned = if lock { WherePinned::PinAnew } else { WherePinned::Refuse };
                let done = plugins::rollback(&name, pinned, config).map_err(|error| not_rolled_back(&name, error))?;
                let to = first_digits(&done.to);
                output::print(&format!("{} is {to} again; a running host swaps it in by itself\n", shown(&name)))?;
                if let Err(failure) = note_rollback(&name, &done, &reason.audit(), config).await {
                    eprintln!("the audit log does not have this rollback: {}", failure.message());
                }
                Ok(())
            }
            Self::Retry { name } => retry(&name, config),
            Self::Componentize { module, out } => componentize_file(&module, &out),
        }
    }
}

/// Records a rollback in the audit log of the configured database.
async fn note_rollback(name: &str, done: &RolledBack, audit: &Audit, config: &Config) -> Result<(), Failure> {
    let store = database::open_for_command(config).await?;
    let from = done.from.as_deref().map(first_digits);
    let selector = serde_json::json!({ "plugin": name, "from": from, "to": first_digits(&done.to) });
    let noted = store.note(audit, "rollback_plugin", &selector, 1).await;
    store.close().await;
    Ok(noted?)
}

/// The first 12 digits of a digest, by which people know it.
fn first_digits(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

async fn inspect(file: &Path, bytes_only: bool, output: Output, config: &Config) -> Result<(), Failure> {
    if !file.exists() {
        return Err(absent(file));
    }
    let not_one = |error| Failure::new(Exit::Findings, "this file is not an outbox plugin").because(error);
    let anatomy = plugins::anatomy(file).map_err(not_one)?;
    let report = if bytes_only { None } else { Some(plugins::check(file, config).await) };
    let (report, error) = match report {
        Some(Ok(report)) => (Some(report), None),
        Some(Err(error)) => (None, Some(outbox::chain(&error))),
        None => (None, None),
    };
    output::one(&Inspected { anatomy, report, error }, output.output, inspected)
}

async fn check(file: &Path, output: Output, config: &Config) -> Result<(), Failure> {
    if !file.exists() {
        return Err(absent(file));
    }
    let cannot_serve = |error| Failure::new(Exit::Findings, "this file cannot serve").because(error);
    let report = plugins::check(file, config).await.map_err(cannot_serve)?;
    output::one(&report, output.output, described)
}

/// Shows what the directory would change: compared with another one, or with what the hosts serve now.
async fn check_directory(dir: &Path, against: Option<&Path>, output: Output, config: &Config) -> Result<(), Failure> {
    let failed = |error| Failure::new(Exit::Config, "the directories cannot be compared").because(error);
    let now = match against {
        Some(against) if !against.exists() => return Err(absent(against)),
        Some(against) => plugins::inspect_dir(against, config).await.map_err(failed)?,
        None => now(dir, config).await?,
    };
    let candidate = plugins::inspect_dir(dir, config).await.map_err(failed)?;
    let changes = changes::changes(&now, &candidate);
    let none = |changes: &[Change]| if changes.is_empty() { String::new() } else { changes::table(changes) };
    output::many(&changes, output.output, none)?;
    tell_of_strays(dir);
    let fault = changes.iter().any(|change| change.error.is_some());
    if fault { Err(Failure::silent(Exit::Findings)) } else { Ok(()) }
}

fn lock(dir: Option<PathBuf>, output: Output, config: &Config) -> Result<(), Failure> {
    let not_pinned = |error| Failure::new(Exit::Findings, "the plugins cannot be pinned").because(error);
    let (file, locked) = plugins::lock(dir.clone(), config).map_err(not_pinned)?;
    output::many(&locked, output.output, |locked| if locked.is_empty() { String::new() } else { pins(locked) })?;
    tell_of_strays(dir.as_deref().unwrap_or(&config.plugins.dir));
    eprintln!("{} pins {}", file.display(), output::count(locked.len() as u64, "plugin"));
    Ok(())
}

fn retry(name: &str, config: &Config) -> Result<(), Failure> {
    let file = config.plugins.dir.join(format!("{name}.wasm"));
    if !file.exists() {
        let what = format!("no such plugin: {} does not exist", shown(&file.to_string_lossy()));
        return Err(Failure::new(Exit::NotFound, what).detail("`outbox plugin list` shows all plugins".to_owned()));
    }
    let lifted = plugins::retry(name, config).map_err(|error| {
        Failure::new(Exit::NotFound, format!("the plugin {} cannot be tried again", shown(name))).because(error)
    })?;
    let rest = humantime::format_duration(config.plugins.rescan_interval);
    if lifted {
        eprintln!("{} is compiled again by a running host within {rest}, or when a host starts", shown(name));
    } else {
        eprintln!("{} was not quarantined, so there is nothing to retry", shown(name));
    }
    Ok(())
}

fn componentize_file(module: &Path, out: &Path) -> Result<(), Failure> {
    let failed = |file: &Path, what: &str| Failure::new(Exit::Failed, format!("{} {what}", file.display()));
    let core = std::fs::read(module)
        .map_err(|error| Failure::unreadable(format!("{} cannot be read", module.display()), error, Exit::Failed))?;
    let component =
        componentize(core).map_err(|reason| failed(module, &format!("cannot be turned into a component: {reason}")))?;
    let draft = out.with_extension("wasm.part");
    let written = std::fs::write(&draft, &component).and_then(|()| std::fs::rename(&draft, out));
    written.map_err(|error| failed(out, "cannot be written").because(error))?;
    output::print(&format!("{}: {}\n", out.display(), output::whole_size(component.len() as u64)))
}

fn absent(file: &Path) -> Failure {
    Failure::new(Exit::NotFound, format!("{} does not exist", file.display()))
}

fn not_rolled_back(name: &str, error: LoadError) -> Failure {
    let is_pinned = matches!(error, LoadError::Pin { .. } | LoadError::Unpinned { .. });
    let exit = if is_pinned { Exit::Conflict } else { Exit::NotFound };
    let failure = Failure::new(exit, format!("the plugin {} cannot be rolled back", shown(name))).because(error);
    if is_pinned {
        let fix =
            format!("nothing has changed; to pin the version before too: outbox plugin rollback {} --lock", argument(name));
        failure.details(vec![fix])
    } else {
        failure
    }
}

/// Says which files of the directory are of no use to any plugin.
fn tell_of_strays(dir: &Path) {
    for stray in plugins::strays(dir) {
        eprintln!("{}", shown(&stray));
    }
}

/// What the hosts that run serve, each plugin once; what lies in the plugins directory where none runs, and nothing where that is
/// the candidate itself.
async fn now(candidate: &Path, config: &Config) -> Result<Vec<PluginStatus>, Failure> {
    let (told, unknown) = told(config).await?;
    let no_host = if unknown.is_some() { "whether a host runs is unknown" } else { "no host runs on this table" };
    if let Some(failure) = unknown {
        eprintln!("the plugins of running hosts are unknown: {}", shown(&failure.chain()));
    }
    let same = || Some(candidate.canonicalize().ok()? == config.plugins.dir.canonicalize().ok()?);
    let listed = if !told.is_empty() {
        eprintln!("compared with the running hosts");
        told
    } else if same().unwrap_or_default() {
        eprintln!("{no_host}, so there is nothing to compare the plugins directory with");
        Vec::new()
    } else {
        eprintln!("{no_host}: compared with the plugins directory");
        loaded(config).await?
    };
    let mut once: Vec<PluginStatus> = Vec::new();
    for Listed { status, .. } in listed {
        if !once.iter().any(|other| other.name == status.name) {
            once.push(status);
        }
    }
    Ok(once)
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
