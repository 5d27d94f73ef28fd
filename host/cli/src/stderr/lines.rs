//! Log lines on their way to standard error: a bounded queue, and one thread that writes.
//!
//! If a worker wrote by itself, a full pipe or a stopped terminal would hold it up, and the host with it. The thread is woken
//! at once and writes line by line, so a host that is killed has said what it did. A regular file never blocks and is written
//! directly.
//!
//! Not `tracing-appender`: its queue is bounded by lines instead of bytes, drops warnings as early as other lines, and loses a line
//! without counting it when a non-blocking descriptor is full.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes of lines that wait to be written.
const ROOM: usize = 1 << 20;
/// A quarter more for warnings and errors, so that they are dropped last.
const RESERVE: usize = ROOM / 4;
/// What keeping a line costs beside its text.
const LINE_BYTES: usize = 64;
/// How often it is said that lines are dropped while others are still written.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);
/// The target of the line that says so.
const NOTICE: &str = "outbox::log";
/// The target of the lines that plugins write.
const PLUGIN: &str = "outbox::plugin";

/// Where log lines go.
#[derive(Clone)]
pub(crate) enum Lines {
    /// A queue: no worker waits for the reader.
    Queued(Arc<Queue>),
    /// A regular file, which takes every line at once.
    Direct,
}

/// Which lines are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Priority {
    Low,
    /// Warnings, errors, and what the program itself has to say.
    High,
    /// How many were dropped. Always finds room: there is one a second.
    Notice,
}

/// Lines that wait to be written.
pub(crate) struct Queue {
    room: usize,
    state: Mutex<State>,
    /// Told when a line comes, and when the last one was written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    /// Whether the thread has a line in its hands.
    writing: bool,
}

impl Lines {
    /// The way to standard error.
    pub(super) fn to_stderr() -> Self {
        let stderr = io::stderr();
        if fstat(&stderr).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
            return Self::Direct;
        }
        let queue = Queue::new(ROOM);
        // Without the thread the old way is better than none.
        if Queue::start(&queue, stderr) { Self::Queued(queue) } else { Self::Direct }
    }

    /// Writes text that is no log line.
    pub(super) fn say(&self, text: &str) {
        self.write(Priority::High, text.as_bytes());
    }

    /// Waits until everything is written, at most this long.
    pub(super) fn flush(&self, patience: Duration) {
        if let Self::Queued(queue) = self {
            queue.flush(patience);
        }
    }

    fn write(&self, priority: Priority, line: &[u8]) {
        match self {
            Self::Queued(queue) => queue.push(priority, line),
            // There is nobody else to tell.
            Self::Direct => drop(io::stderr().write_all(line)),
        }
    }
}

impl Queue {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { room, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Starts the thread that writes; false when there can be none.
    fn start(queue: &Arc<Self>, out: impl Write + AsFd + Send + 'static) -> bool {
        let queue = queue.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || queue.write_all(out)).is_ok()
    }

    fn push(&self, priority: Priority, line: &[u8]) {
        let mut state = self.lock();
        let size = line.len() + LINE_BYTES;
        let room = match priority {
            Priority::Low => self.room,
            Priority::High => self.room + RESERVE,
            Priority::Notice => usize::MAX,
        };
        if state.bytes + size > room {
            state.dropped += 1;
            return;
        }
        state.bytes += size;
        state.lines.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    fn flush(&self, patience: Duration) {
        let waits = |state: &mut State| state.writing || !state.lines.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), patience, waits));
    }

    fn write_all(&self, mut out: impl Write + AsFd) {
        let mut noticed: Option<Instant> = None;
        loop {
            let line = self.next();
            let written = write_line(&mut out, &line).is_ok();
            let mut state = self.lock();
            state.bytes -= line.len() + LINE_BYTES;
            state.dropped += u64::from(!written);
            let due = state.lines.is_empty() || noticed.is_none_or(|at| at.elapsed() >= NOTICE_INTERVAL);
            if written && state.dropped > 0 && due {
                let dropped = std::mem::take(&mut state.dropped);
                // It comes back into the queue as a line like all others.
                drop(state);
                tracing::warn!(target: NOTICE, dropped, "log lines were dropped: standard error was not read in time");
                noticed = Some(Instant::now());
                state = self.lock();
            }
            state.writing = false;
            let is_empty = state.lines.is_empty();
            drop(state);
            if is_empty {
                self.changed.notify_all();
            }
        }
    }

    fn next(&self) -> Vec<u8> {
        let waits = |state: &mut State| state.lines.is_empty();
        let mut state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
        state.lines.pop_front().expect("there is one")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for whoever reads. Who started the program may have made the descriptor one that does not wait.
fn write_line(out: &mut (impl Write + AsFd), mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => line = &line[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_room(out.as_fd())?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_for_room(out: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::new(&out, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One line on its way; the formatter hands it over in one piece.
pub(crate) struct Line<'l> {
    lines: &'l Lines,
    priority: Priority,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.write(self.priority, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'l> MakeWriter<'l> for Lines {
    type Writer = Line<'l>;

    fn make_writer(&'l self) -> Line<'l> {
        Line { lines: self, priority: Priority::Low }
    }

    fn make_writer_for(&'l self, meta: &Metadata<'_>) -> Line<'l> {
        let priority = match *meta.level() {
            _ if meta.target() == NOTICE => Priority::Notice,
            // What a plugin writes keeps none of the host's own lines out.
            _ if meta.target() == PLUGIN => Priority::Low,
            Level::ERROR | Level::WARN => Priority::High,
            _ => Priority::Low,
        };
        Line { lines: self, priority }
    }
}

#[cfg(test)]
mod tests;
