//! Lines on standard error, one after another: log lines, and what the program says beside them.

mod lines;

use std::sync::OnceLock;
use std::time::Duration;

pub(crate) use lines::Lines;

/// How long the end of the program waits for whoever reads its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// The queue of a host's log lines. Other commands have none: they have no workers to hold up.
static LINES: OnceLock<Lines> = OnceLock::new();

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

/// The queue of a host's log lines.
pub(crate) fn queue() -> Lines {
    LINES.get_or_init(Lines::to_stderr).clone()
}
