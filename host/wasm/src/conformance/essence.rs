//! What of a call must be the same the next time: its answer and its effects, as lines of text. Not its log, its costs or the
//! ids that the host made.

use std::fmt::Write;
use std::time::Duration;

use outbox_event::{Envelope, FailureKind, Outcome, StateWrite};

use crate::CallReport;

/// The lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Essence(Vec<String>);

impl Essence {
    pub(super) fn of(report: &CallReport) -> Self {
        let mut lines = vec![answer(&report.outcome)];
        lines.extend(report.effects.emitted.iter().map(emitted));
        for (key, change) in report.effects.state.iter().flat_map(|state| &state.keys) {
            match &change.write {
                Some(StateWrite::Set(value)) => lines.push(format!("sets {key:?} to {}", text(value))),
                Some(StateWrite::Delete) => lines.push(format!("removes {key:?}")),
                None => {}
            }
        }
        // The guest may have put an id that the host made into a payload or a value.
        for (number, envelope) in report.effects.emitted.iter().enumerate() {
            let id = envelope.id();
            if is_ulid(id.as_str()) {
                for line in &mut lines {
                    *line = line.replace(id.as_str(), &format!("<id {number}>"));
                }
            }
        }
        Self(lines)
    }

    /// The first line in which another differs, and what stands there instead; `None` when they are the same.
    pub(super) fn differs(&self, other: &Self) -> Option<(String, String)> {
        let most = self.0.len().max(other.0.len());
        let at = |lines: &Self, index: usize| lines.0.get(index).map_or("nothing more", String::as_str).to_owned();
        let pairs = (0..most).map(|index| (at(self, index), at(other, index)));
        pairs.into_iter().find(|(own, others)| own != others)
    }
}

/// An outcome in a line.
pub(super) fn answer(outcome: &Outcome) -> String {
    let after = |delay: &Duration| humantime::format_duration(*delay).to_string();
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::RetryAfter(delay) => format!("retry-after {}", after(delay)),
        Outcome::Dead(reason) => format!("dead: {reason}"),
        Outcome::Failed(failure) => match failure.kind {
            FailureKind::Retryable => format!("retryable: {failure}"),
            FailureKind::RetryableAfter(delay) => format!("retryable-after {}: {failure}", after(&delay)),
            FailureKind::Unrecoverable => format!("unrecoverable: {failure}"),
        },
        Outcome::Unroutable(reason) => format!("unroutable: {reason}"),
        Outcome::Busy { .. } => "busy".to_owned(),
    }
}

/// A follow-up event in a line; its times as they lie from its own.
pub(super) fn emitted(envelope: &Envelope) -> String {
    let mut line = format!("emits {} {}", envelope.route(), envelope.id());
    for (what, value) in [("aggregate_id", envelope.aggregate_id()), ("tenant_id", envelope.tenant_id())] {
        if let Some(value) = value {
            let _ = write!(line, " {what}={value:?}");
        }
    }
    let delay = envelope.available_at().since(envelope.occurred_at());
    if !delay.is_zero() {
        let _ = write!(line, " in {}", humantime::format_duration(delay));
    }
    if let Some(expires_at) = envelope.expires_at() {
        // Two clocks were read: the guest's call of the host, and the envelope's making.
        let seconds = expires_at.since(envelope.occurred_at()).as_secs_f64().round();
        let _ = write!(line, " expiring in {seconds} s");
    }
    for (key, value) in envelope.headers().iter() {
        let _ = write!(line, " {key}={value:?}");
    }
    let _ = write!(line, " {} {}", envelope.content_type(), text(envelope.payload_bytes()));
    line
}

/// Bytes as text; as base64 where they are none.
pub(super) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("base64 {}", data_encoding::BASE64.encode(bytes)),
    }
}

/// Whether the host would make such an id. A guest may give one that looks the same; then it is taken for the host's.
fn is_ulid(id: &str) -> bool {
    id.len() == 26 && id.bytes().all(|byte| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte)))
}
