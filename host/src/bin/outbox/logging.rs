//! Log lines on stderr.

mod lines;

use std::sync::OnceLock;
use std::time::Duration;

use lines::Lines;
use tracing_subscriber::EnvFilter;

use crate::config::layers::Origin;
use crate::config::{LogFormat, Settings, rust_log};
use crate::terminal;

/// How long the end of the program waits for whoever reads its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The queue of a host's log lines. Other commands have none: they have no workers to hold up.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Begins logging. A host says what it does; other commands speak up only when something is wrong, unless a level was set.
///
/// `RUST_LOG` goes before the level of the file, module by module. What was said to this program alone, by a flag or by `OUTBOX_LOG`,
/// goes before both: `RUST_LOG` does not count then.
pub(crate) fn start(settings: &Settings, host: bool) {
    let log = &settings.config.log;
    let origin = settings.layers.origin("log.level").unwrap_or(&Origin::Default);
    let directives = directives(&log.level, origin, host);
    let more = rust_log().filter(|_| is_below_rust_log(origin));
    let both = more.as_ref().map(|more| EnvFilter::try_new(format!("{directives},{more}")));
    let alone = || EnvFilter::try_new(&directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, fault) = match both {
        Some(Ok(both)) => (both, None),
        Some(Err(error)) => (alone(), Some(error)),
        None => (alone(), None),
    };
    let writer = if host { lines() } else { Lines::Direct };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // Set once; a second time there is nothing to do.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_target(false).with_ansi(terminal::stderr_has_colours()).try_init(),
    };
    if let Some(error) = fault {
        // It is written for many programs: one that does not understand it is no reason to stand still.
        tracing::warn!("the variable RUST_LOG is left out, since it is no list of levels by module: {error}");
    }
}

/// Whether `RUST_LOG` goes before a level that was set there.
fn is_below_rust_log(origin: &Origin) -> bool {
    matches!(origin, Origin::Default | Origin::File(..))
}

/// What is logged by the configuration alone.
fn directives(level: &str, origin: &Origin, host: bool) -> String {
    let level = if host || *origin != Origin::Default { level } else { "warn" };
    let plain = !level.contains(['=', ',']);
    // A bare level is meant for the host: at `debug` the compiler alone would say thousands of lines. The driver warns of each
    // connection that a restart cuts, and of each call that waits for another; the host says once what failed and what it does.
    if plain && level != "off" {
        // Other commands than a host tell themselves why a plugin does not load.
        let loads = if host { "" } else { ",outbox::plugin_loads=off" };
        format!("{level},sqlx=error,wasmtime=warn,cranelift_codegen=warn{loads}")
    } else {
        level.to_owned()
    }
}

/// Writes a line that is no log line to standard error, in its place between them; waits for nobody where a host runs.
pub(crate) fn say(line: &str) {
    match LINES.get() {
        Some(lines) => lines.say(&format!("{line}\n")),
        None => eprintln!("{line}"),
    }
}

/// Waits until the last lines are written, at most [`LAST_LINES`].
pub(crate) fn finish() {
    if let Some(lines) = LINES.get() {
        lines.flush(LAST_LINES);
    }
}

/// Has the last lines written when it is dropped: at the end of the program, also by a panic.
pub(crate) struct LastLines;

impl Drop for LastLines {
    fn drop(&mut self) {
        finish();
    }
}

fn lines() -> Lines {
    LINES.get_or_init(Lines::to_stderr).clone()
}
