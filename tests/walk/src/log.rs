//! What hosts log, put between the lines of the history of their run.

use std::cell::RefCell;
use std::io::{self, Write};

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::again;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How many characters of a line are its time.
const TIME: usize = 11;

/// Collects it from now on.
pub(crate) fn collect() {
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).with_target(false);
    subscriber.with_timer(Paused).with_writer(|| Line).init();
}

/// Puts the lines of this thread's run where they belong.
pub(crate) fn merge(history: &mut Vec<String>) {
    history.extend(LINES.take());
    history.sort_by(|one, other| one.get(..TIME).cmp(&other.get(..TIME)));
}

struct Paused;

impl FormatTime for Paused {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{:>TIME$.6}     ", again::elapsed().as_secs_f64())
    }
}

struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes).trim_end().to_owned();
        LINES.with_borrow_mut(|lines| lines.push(line));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
