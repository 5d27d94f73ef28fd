//! Log lines on stderr.

mod lines;

use std::sync::OnceLock;
use std::time::Duration;

use lines::Lines;
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Settings};
use crate::terminal;

/// How long the end of the program waits for whoever reads its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The queue of a host's log lines. Other commands have none: they have no workers to hold up.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Begins logging. A host says what it does; other commands speak up only when something is wrong, unless a level was set.
pub(crate) fn start(settings: &Settings, host: bool) {
    let log = &settings.config.log;
    let level = if host || settings.is_set("log.level") { log.level.as_str() } else { "warn" };
    let plain = !level.contains(['=', ',']);
    // A bare level is meant for the host: at `debug` the compiler alone would say thousands of lines. The driver warns of each
    // connection that a restart cuts, and of each call that waits for another; the host says once what failed and what it does.
    let directives = if plain && level != "off" {
        // Other commands than a host tell themselves why a plugin does not load.
        let loads = if host { "" } else { ",outbox::plugin_loads=off" };
        format!("{level},sqlx=error,wasmtime=warn,cranelift_codegen=warn{loads}")
    } else {
        level.to_owned()
    };
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let writer = if host { lines() } else { Lines::Direct };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // Set once; a second time there is nothing to do.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_target(false).with_ansi(terminal::stderr_has_colours()).try_init(),
    };
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
