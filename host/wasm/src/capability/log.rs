//! The `log` interface, and the lines of a call, to which those of stdout and stderr belong.
//!
//! Budgeted, so that no guest fills a disk; escaped, so that none forges a line.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use outbox_event::EventId;
use outbox_event::text::{cut, escape_within};
use serde::{Deserialize, Serialize};

use super::{Grants, HostState, Identity};
use crate::bindings::outbox::listener::log::{Host, Level};
use crate::limits::{Exceeded, pairs_bytes};

/// The target of everything that plugins log.
pub(crate) const TARGET: &str = "outbox::plugin";

const MAX_LINE_BYTES: usize = 8 << 10;
const MAX_LINES: u32 = 100;
const MAX_BYTES: usize = 64 << 10;
const MAX_STREAM_BYTES: u64 = 4 << 20;
const TAIL_LINES: usize = 5;
/// The most fields of a line.
const MAX_FIELDS: usize = 64;

/// One line of a guest's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// How important the guest finds it. Standard output is `info`, standard error `warn`.
    pub level: LogLevel,
    /// The text.
    pub message: String,
    /// Names and values beside it.
    pub fields: Vec<(String, String)>,
}

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// For whoever looks for a fault.
    Debug,
    /// What happened.
    Info,
    /// It may be wrong.
    Warn,
    /// It is wrong.
    Error,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => Self::Trace,
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

impl Host for HostState {
    fn write(&mut self, level: Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.meter.charge(message.len() + pairs_bytes(&fields))?;
        let mut lines = self.lines().lock().unwrap_or_else(PoisonError::into_inner);
        lines.write(level, &message, &fields);
        Ok(())
    }

    fn max_level(&mut self) -> wasmtime::Result<Option<Level>> {
        self.meter.charge(0)?;
        if self.identity.is_reporting() {
            return Ok(Some(Level::Trace));
        }
        macro_rules! is_kept {
            ($level:ident) => {
                tracing::enabled!(target: TARGET, tracing::Level::$level)
            };
        }
        Ok(if is_kept!(TRACE) {
            Some(Level::Trace)
        } else if is_kept!(DEBUG) {
            Some(Level::Debug)
        } else if is_kept!(INFO) {
            Some(Level::Info)
        } else if is_kept!(WARN) {
            Some(Level::Warn)
        } else if is_kept!(ERROR) {
            Some(Level::Error)
        } else {
            None
        })
    }
}

pub(super) type SharedLines = Arc<Mutex<LogLines>>;

/// The lines of one call, on their way into the host's log.
#[derive(Debug)]
pub(super) struct LogLines {
    identity: Arc<Identity>,
    event: Option<EventId>,
    written: u32,
    bytes: usize,
    dropped: u32,
    stream_bytes: u64,
    unfinished: [Vec<u8>; 2],
    /// The last lines of stderr, as they were written.
    tail: VecDeque<String>,
    /// The lines, where they go into a report and not into the log.
    reported: Vec<LogLine>,
    reported_dropped: u32,
}

/// One of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

impl LogLines {
    pub(super) fn new(identity: Arc<Identity>, event: Option<EventId>) -> Self {
        Self {
            identity,
            event,
            written: 0,
            bytes: 0,
            dropped: 0,
            stream_bytes: 0,
            unfinished: [Vec::new(), Vec::new()],
            tail: VecDeque::new(),
            reported: Vec::new(),
            reported_dropped: 0,
        }
    }

    /// The lines of a call that has ended, and how many were dropped, for its report.
    pub(super) fn take_reported(&mut self) -> (Vec<LogLine>, u32) {
        (std::mem::take(&mut self.reported), std::mem::take(&mut self.reported_dropped))
    }

    pub(super) fn begin(&mut self, event: Option<EventId>) {
        self.event = event;
        (self.written, self.bytes, self.dropped, self.stream_bytes) = (0, 0, 0, 0);
        self.tail.clear();
        let _ = self.take_reported();
    }

    pub(super) fn end(&mut self) -> Option<String> {
        for stream in [Stream::Out, Stream::Err] {
            self.finish_line(stream);
        }
        if self.identity.is_reporting() {
            self.reported_dropped += std::mem::take(&mut self.dropped);
        }
        if self.dropped > 0 && self.identity.may_log(0) {
            let (plugin, digest) = (self.identity.name.as_str(), self.identity.digest.as_str());
            let event = self.event.as_ref().map(EventId::as_str);
            tracing::warn!(
                target: TARGET, plugin, digest, event.id = event,
                "{} lines dropped: more than {MAX_LINES} lines or {} KiB in one call", self.dropped, MAX_BYTES >> 10
            );
        }
        self.dropped = 0;
        let grants = &self.identity.grants;
        let told = |line: String| escape_within(&grants.hide(&line), 300).0.into_owned();
        (!self.tail.is_empty()).then(|| self.tail.drain(..).map(told).collect::<Vec<_>>().join(" | "))
    }

    fn write(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        let size = message.len() + fields.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let size = size.min(MAX_LINE_BYTES);
        if self.written >= MAX_LINES || self.bytes + size > MAX_BYTES {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.written += 1;
        self.bytes += size;
        if self.identity.is_reporting() {
            return self.report(level, message, fields);
        }
        let (plugin, digest) = (self.identity.name.as_str(), self.identity.digest.as_str());
        let event = self.event.as_ref().map(EventId::as_str);
        macro_rules! emit {
            ($level:ident) => {
                if tracing::enabled!(target: TARGET, tracing::Level::$level) {
                    let grants = &self.identity.grants;
                    let message = grants.hide(message);
                    let (message, _) = escape_within(&message, MAX_LINE_BYTES);
                    let fields = listed(grants, fields, MAX_LINE_BYTES - message.len());
                    // An escape is longer than what it stands for.
                    let written = message.len() + fields.as_ref().map_or(0, String::len);
                    self.bytes += written.saturating_sub(size);
                    if self.identity.may_log(written) {
                        tracing::event!(
                            target: TARGET, tracing::Level::$level, plugin, digest, event.id = event, fields, "{message}"
                        );
                    }
                }
            };
        }
        match level {
            Level::Trace => emit!(TRACE),
            Level::Debug => emit!(DEBUG),
            Level::Info => emit!(INFO),
            Level::Warn => emit!(WARN),
            Level::Error => emit!(ERROR),
        }
    }

    /// Keeps a line for the report: its text as the guest wrote it, without secrets.
    fn report(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        let grants = &self.identity.grants;
        let text = |text: &str| cut(&grants.hide(text), MAX_LINE_BYTES).to_owned();
        let fields = fields.iter().take(MAX_FIELDS).map(|(key, value)| (text(key), text(value))).collect();
        self.reported.push(LogLine { level: level.into(), message: text(message), fields });
    }

    /// Takes bytes of a stream; every line feed ends a line, and so does the longest line.
    pub(super) fn stream(&mut self, stream: Stream, mut bytes: &[u8]) -> Result<(), Exceeded> {
        self.stream_bytes = self.stream_bytes.saturating_add(bytes.len() as u64);
        if self.stream_bytes > MAX_STREAM_BYTES {
            return Err(Exceeded::HostBytes);
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.append(stream, &bytes[..end]);
            self.finish_line(stream);
            bytes = &bytes[end + 1..];
        }
        self.append(stream, bytes);
        Ok(())
    }

    /// Keeps the beginning of a line that is too long, with the whole of a secret that crosses its end, and drops the rest of it.
    fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let max = MAX_LINE_BYTES + 4 + self.identity.grants.longest_secret();
        let line = &mut self.unfinished[stream as usize];
        let room = max.saturating_sub(line.len());
        line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn finish_line(&mut self, stream: Stream) {
        let line = std::mem::take(&mut self.unfinished[stream as usize]);
        if line.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let text = self.identity.grants.cut(text.trim_end_matches('\r'), MAX_LINE_BYTES + 4);
        if stream == Stream::Err {
            if self.tail.len() == TAIL_LINES {
                self.tail.pop_front();
            }
            self.tail.push_back(text.to_owned());
        }
        self.write(if stream == Stream::Err { Level::Warn } else { Level::Info }, text, &[]);
    }
}

/// A call that is cut off ends too, and its dropped lines are told all the same.
impl Drop for LogLines {
    fn drop(&mut self) {
        self.end();
    }
}

/// `key=value key=value`, of `max` bytes at most; nothing when there are none.
fn listed(grants: &Grants, fields: &[(String, String)], max: usize) -> Option<String> {
    let mut listed = String::new();
    for (key, value) in fields.iter().take(MAX_FIELDS) {
        let key = grants.hide(key);
        let (key, _) = escape_within(&key, 256);
        let gap = if listed.is_empty() { "" } else { " " };
        // With the sign between the two.
        let Some(room) = max.checked_sub(listed.len() + gap.len() + key.len() + 1) else { break };
        let value = grants.hide(value);
        write!(listed, "{gap}{key}={}", escape_within(&value, room).0).expect("a String takes everything");
    }
    (!listed.is_empty()).then_some(listed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tests::logged;

    fn lines() -> LogLines {
        LogLines::new(Arc::new(Identity::new("p".to_owned(), "d".to_owned(), Grants::default())), None)
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_than_the_longest_line() {
        let mut lines = lines();
        for _ in 0..60 {
            lines.stream(Stream::Out, &[b'x'; 65_536]).unwrap();
        }
        assert!(lines.unfinished[0].len() <= MAX_LINE_BYTES + 4);
        assert!(matches!(lines.stream(Stream::Out, &[b'x'; 500_000]), Err(Exceeded::HostBytes)));
    }

    #[tokio::test]
    async fn a_secret_that_crosses_the_end_of_the_longest_line_is_hidden() {
        let secret = "s3cret-token";
        for before in [MAX_LINE_BYTES - 11, MAX_LINE_BYTES - 7, MAX_LINE_BYTES - 1, MAX_LINE_BYTES + 3] {
            let secrets = BTreeMap::from([("token".to_owned(), secret.to_owned())]).into();
            let grants = Grants { secrets, ..Grants::default() };
            let identity = Arc::new(Identity::new("p".to_owned(), "d".to_owned(), grants));
            let line = format!("{}{secret} and more", "x".repeat(before));

            let ((), written) = logged(async {
                let mut lines = LogLines::new(identity, None);
                lines.stream(Stream::Out, line.as_bytes()).unwrap();
            })
            .await;

            assert!(written.iter().any(|line| line.contains("xxx")), "it was logged");
            assert!(!written.iter().any(|line| line.contains("xs")), "{before} bytes before the secret");
        }
    }

    #[test]
    fn lines_over_the_budget_are_counted_and_the_last_of_stderr_are_kept() {
        let mut lines = lines();
        for number in 0..150 {
            lines.stream(Stream::Err, format!("line {number}\r\n").as_bytes()).unwrap();
        }
        lines.stream(Stream::Err, b"half \x1b[1m").unwrap();
        assert_eq!(lines.dropped, 50);
        assert_eq!(lines.end().unwrap(), "line 146 | line 147 | line 148 | line 149 | half \\u{1b}[1m");
        assert_eq!(lines.dropped, 0, "told");
        lines.begin(None);
        lines.write(Level::Info, "again", &[]);
        assert_eq!((lines.written, lines.dropped), (1, 0));
    }

    #[test]
    fn fields_are_listed_in_bounds() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let listed = |fields: &[(String, String)]| listed(&Grants::default(), fields, MAX_LINE_BYTES);
        assert_eq!(listed(&[pair("a", "1"), pair("b", "x\ny")]).unwrap(), "a=1 b=x\\ny");
        assert_eq!(listed(&[]), None);
        let many: Vec<_> = (0..10_000).map(|_| pair(&"k".repeat(300), &"v".repeat(300))).collect();
        assert!(listed(&many).unwrap().len() <= MAX_LINE_BYTES);
        let escaped: Vec<_> = (0..10).map(|_| pair(&"\x1b".repeat(300), &"\x1b".repeat(8_192))).collect();
        assert!(listed(&escaped).unwrap().len() <= MAX_LINE_BYTES);
    }

    #[tokio::test]
    async fn what_is_written_is_in_bounds_however_long_its_escapes_are() {
        let escapes = "\x1b".repeat(MAX_LINE_BYTES);
        let ((), written) = logged(async {
            let mut lines = lines();
            for _ in 0..50 {
                lines.write(Level::Info, &escapes, &[("key".to_owned(), escapes.clone())]);
            }
        })
        .await;
        let of_guest: Vec<_> = written.iter().filter(|line| line.contains("u{1b}")).collect();
        // The line of a test's log quotes each escape once more, and has its names beside it.
        assert!(of_guest.iter().all(|line| line.len() < MAX_LINE_BYTES * 2), "{}", of_guest[0].len());
        assert_eq!(of_guest.len(), MAX_BYTES / MAX_LINE_BYTES);
    }
}
