//! What must come of a case's event, and how it differs from what came.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use humantime::format_duration;
use outbox_event::units::duration_option;
use outbox_event::{Envelope, Failure, FailureKind, Outcome, StateWrite};
use serde::Deserialize;
use serde_json::Value;

use super::essence::{answer, emitted, text};
use super::report::Finding;
use super::sent::{self, Difference, Differences, Summary, compare_each, compare_messages, compare_requests};
use super::written::WrittenBytes;
use crate::{CallReport, LogLevel, LogLine};

/// What must come of an event. What is left out is not looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    answer: Answer,
    /// The delay of `retry-after` and `retryable-after`, such as `1m 30s`.
    #[serde(default, with = "duration_option")]
    after: Option<Duration>,
    /// A part of the reason of `dead`, or of a failure's message.
    text: Option<String>,
    /// The code of a failure.
    code: Option<String>,
    /// All follow-up events, in order.
    emitted: Option<Vec<Emitted>>,
    /// All HTTP requests, in order.
    requests: Option<Vec<sent::Request>>,
    /// All messages to sinks, in order.
    messages: Option<Vec<sent::Message>>,
    /// All of the state afterwards.
    state: Option<BTreeMap<String, WrittenBytes>>,
    /// Lines of the log, in this order; others may stand between them.
    log: Option<Vec<Line>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Done,
    RetryAfter,
    Dead,
    Retryable,
    RetryableAfter,
    Unrecoverable,
    /// Any of the three failures.
    Failure,
}

/// A follow-up event; what is left out is not looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Emitted {
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    event_id: Option<String>,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    payload: Option<Value>,
    payload_text: Option<String>,
    #[serde(default, with = "duration_option")]
    deliver_after: Option<Duration>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    level: Option<LogLevel>,
    /// A part of its text.
    text: String,
    #[serde(default)]
    fields: BTreeMap<String, String>,
}

impl Expect {
    /// Faults that can be told without calling the plugin.
    pub(super) fn check(&self) -> Result<(), String> {
        let has = |given: bool, what: &str, of: &[Answer], words: &str| {
            if given && !of.contains(&self.answer) {
                return Err(format!("expect.{what} goes with the answers {words}"));
            }
            Ok(())
        };
        use Answer::{Dead, Failure, RetryAfter, Retryable, RetryableAfter, Unrecoverable};
        has(self.after.is_some(), "after", &[RetryAfter, RetryableAfter], "retry-after and retryable-after")?;
        has(self.code.is_some(), "code", &[Retryable, RetryableAfter, Unrecoverable, Failure], "that are failures")?;
        let spoken = [Dead, Retryable, RetryableAfter, Unrecoverable, Failure];
        has(self.text.is_some(), "text", &spoken, "dead and failures")
    }

    /// What differs; empty when nothing does.
    pub(super) fn compare(&self, report: &CallReport, before: &BTreeMap<String, Bytes>) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.answer(&report.outcome).into_iter().collect();
        if let Some(expected) = &self.emitted {
            findings.extend(compare_each("emitted event", expected, &report.effects.emitted, Emitted::differences));
        }
        if let Some(expected) = &self.requests {
            findings.extend(compare_requests(expected, &report.outside));
        }
        if let Some(expected) = &self.messages {
            findings.extend(compare_messages(expected, &report.outside));
        }
        if let Some(expected) = &self.state {
            findings.extend(compare_state(expected, before, report));
        }
        if let Some(expected) = &self.log {
            findings.extend(compare_log(expected, &report.lines));
        }
        findings
    }

    fn answer(&self, outcome: &Outcome) -> Option<Finding> {
        let (is, after, said, code) = taken_apart(outcome)?;
        let after_fits = self.after.is_none() || self.after == after;
        let kind_fits = self.answer == is || (self.answer == Answer::Failure && is.is_failure());
        let text_fits = self.text.as_ref().is_none_or(|part| said.contains(part.as_str()));
        let code_fits = self.code.as_deref().is_none_or(|wanted| code == Some(wanted));
        if after_fits && kind_fits && text_fits && code_fits {
            return None;
        }
        let mut wanted = self.answer.as_str().to_owned();
        let span = self.after.map(|span| format_duration(span).to_string());
        for (word, value) in [("after", &span), ("with the code", &self.code), ("with the text", &self.text)] {
            if let Some(value) = value {
                wanted.push_str(&format!(" {word} {value:?}"));
            }
        }
        Some(Finding::new("answer", answer(outcome)).instead_of(wanted))
    }
}

impl Answer {
    fn is_failure(self) -> bool {
        matches!(self, Self::Retryable | Self::RetryableAfter | Self::Unrecoverable)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::RetryAfter => "retry-after",
            Self::Dead => "dead",
            Self::Retryable => "retryable",
            Self::RetryableAfter => "retryable-after",
            Self::Unrecoverable => "unrecoverable",
            Self::Failure => "failure",
        }
    }
}

/// The kind, the delay, the text and the code of an outcome; `None` for those that no listener gives.
fn taken_apart(outcome: &Outcome) -> Option<(Answer, Option<Duration>, String, Option<&str>)> {
    Some(match outcome {
        Outcome::Done => (Answer::Done, None, String::new(), None),
        Outcome::RetryAfter(delay) => (Answer::RetryAfter, Some(*delay), String::new(), None),
        Outcome::Dead(reason) => (Answer::Dead, None, reason.clone(), None),
        Outcome::Failed(failure) => {
            let (is, after) = match failure.kind {
                FailureKind::Retryable => (Answer::Retryable, None),
                FailureKind::RetryableAfter(delay) => (Answer::RetryableAfter, Some(delay)),
                FailureKind::Unrecoverable => (Answer::Unrecoverable, None),
            };
            (is, after, failure.to_string(), code(failure))
        }
        Outcome::Unroutable(_) | Outcome::Busy { .. } => return None,
    })
}

/// The code stands in front of the message, in brackets.
fn code(failure: &Failure) -> Option<&str> {
    failure.message.strip_prefix('[')?.split_once("] ").map(|(code, _)| code)
}

impl Summary for Emitted {
    fn summary(&self) -> String {
        self.event_type.clone()
    }
}

impl Summary for Envelope {
    fn summary(&self) -> String {
        emitted(self)
    }
}

impl Emitted {
    fn differences(&self, got: &Envelope) -> Vec<Difference> {
        let mut differences = Differences::default();
        let mut compare = |what: &str, wanted: Option<&str>, got: Option<&str>| differences.compare(what, wanted, got);
        compare("event_type", Some(&self.event_type), Some(got.event_type().as_str()));
        compare("aggregate_type", self.aggregate_type.as_deref(), Some(got.aggregate_type().as_str()));
        compare("aggregate_id", self.aggregate_id.as_deref(), got.aggregate_id());
        compare("tenant_id", self.tenant_id.as_deref(), got.tenant_id());
        compare("event_id", self.event_id.as_deref(), Some(got.id().as_str()));
        compare("content_type", self.content_type.as_deref(), Some(got.content_type()));
        for (key, value) in &self.headers {
            compare(&format!("header {key}"), Some(value), got.headers().get(key));
        }
        let payload = text(got.payload_bytes());
        compare("payload_text", self.payload_text.as_deref(), Some(&payload));
        if let Some(wanted) = &self.payload
            && serde_json::from_slice::<Value>(got.payload_bytes()).ok().as_ref() != Some(wanted)
        {
            differences.add("payload", wanted.to_string(), payload);
        }
        let delay = got.available_at().since(got.occurred_at());
        if let Some(wanted) = self.deliver_after.filter(|wanted| *wanted != delay) {
            differences.add("deliver_after", format_duration(wanted).to_string(), format_duration(delay).to_string());
        }
        differences.0
    }
}

fn compare_state(
    expected: &BTreeMap<String, WrittenBytes>,
    before: &BTreeMap<String, Bytes>,
    report: &CallReport,
) -> Vec<Finding> {
    let mut after = before.clone();
    for (key, change) in report.effects.state.iter().flat_map(|state| &state.keys) {
        match &change.write {
            Some(StateWrite::Set(value)) => drop(after.insert(key.clone(), value.clone())),
            Some(StateWrite::Delete) => drop(after.remove(key)),
            None => {}
        }
    }
    let mut findings = Vec::new();
    for (key, wanted) in expected {
        let got = after.remove(key);
        if got.as_ref().is_none_or(|got| !wanted.is(got)) {
            let got = got.map_or_else(|| "nothing".to_owned(), |got| text(&got));
            findings.push(Finding::new(format!("state under {key:?}"), got).instead_of(text(&wanted.bytes())));
        }
    }
    findings.extend(
        after.into_iter().map(|(key, value)| Finding::new(format!("state under {key:?}"), text(&value)).instead_of("nothing")),
    );
    findings
}

impl WrittenBytes {
    /// JSON is compared as JSON, anything else byte by byte.
    fn is(&self, got: &[u8]) -> bool {
        match self {
            Self::Json(json) => serde_json::from_slice::<Value>(got).is_ok_and(|got| got == *json),
            Self::Plain(bytes) => bytes == got,
        }
    }
}

fn compare_log(expected: &[Line], found: &[LogLine]) -> Option<Finding> {
    let mut rest = found.iter();
    let missing = expected.iter().find(|wanted| !rest.any(|line| wanted.is(line)))?;
    let lines: Vec<String> = found.iter().map(|line| format!("{:?} {}", line.level, line.message)).collect();
    let got = if lines.is_empty() { "no lines".to_owned() } else { lines.join(" | ") };
    let level = missing.level.map_or_else(String::new, |level| format!("{level:?} "));
    Some(Finding::new("log", got).instead_of(format!("a line {level}with {:?}", missing.text)))
}

impl Line {
    fn is(&self, line: &LogLine) -> bool {
        let has = |(key, value): (&String, &String)| line.fields.iter().any(|(k, v)| k == key && v == value);
        self.level.is_none_or(|level| level == line.level) && line.message.contains(&self.text) && self.fields.iter().all(has)
    }
}
