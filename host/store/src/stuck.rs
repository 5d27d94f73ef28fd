//! Events that are stuck at a host, as the host lists them in its row.

use std::time::Duration;

use outbox_event::EventId;
use outbox_event::text::{cut, shorten};
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Why events are stuck although others are delivered. Programs may rely on the names; later versions may add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StuckReason {
    /// Their listeners have answered, and the database refuses the outcomes. The host retries, and calls no listener for them.
    OutcomeRefused,
    /// Their listeners have answered, and another transaction has locked their rows for some seconds. The host retries, and calls no
    /// listener for them.
    OutcomeLocked,
    /// Their listeners have answered, and the database has neither stored nor refused the outcomes for some seconds. A statement for all of
    /// them takes long; which of them is the reason is not known yet. The host calls no listener for them.
    OutcomeSlow,
    /// They are due, and the database does not let the host claim them, or cannot return their payloads.
    ClaimRefused,
}

/// The events that are stuck at a host for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct StuckEvents {
    /// The reason.
    pub reason: StuckReason,
    /// How many there are.
    pub count: u32,
    /// The oldest of them, at most 20.
    pub first: Vec<StuckEvent>,
}

/// An event that is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct StuckEvent {
    /// The event's `seq`.
    pub seq: u64,
    /// The event; `None` for a row that cannot be read.
    pub event_id: Option<EventId>,
    /// The error of the database, at most 500 bytes.
    pub error: String,
    /// When the event first got stuck. Measured by the host's clock; the host's row has the time by the database's clock.
    pub since: Timestamp,
}

/// The most bytes of an error in [`StuckEvent`], and of the error of a row that cannot be deleted.
pub(super) const ERROR_BYTES: usize = 500;

impl StuckEvents {
    /// The most events that are named.
    pub const NAMED: usize = 20;

    /// This many events. Names the first ones.
    #[must_use]
    pub fn new(reason: StuckReason, count: usize, first: impl IntoIterator<Item = StuckEvent>) -> Self {
        let first = first.into_iter().take(Self::NAMED).map(StuckEvent::bounded).collect();
        Self { reason, count: u32::try_from(count).unwrap_or(u32::MAX), first }
    }

    /// How long the first event that is named has been stuck: the oldest. `None` if no event is named.
    #[must_use]
    pub fn longest(&self, now: Timestamp) -> Option<Duration> {
        self.first.first().map(|one| now.since(one.since))
    }

    /// The event with this `seq`, if it is named.
    #[must_use]
    pub fn of(&self, seq: u64) -> Option<&StuckEvent> {
        self.first.iter().find(|one| one.seq == seq)
    }

    /// As JSON; `None` if no event is stuck.
    pub(super) fn column(stuck: &[Self]) -> Option<String> {
        (!stuck.is_empty()).then(|| serde_json::to_string(stuck).expect("numbers and texts are JSON"))
    }

    /// Reads what a host wrote; empty if it cannot be read, because the host may be of another version.
    pub(super) fn read(column: Option<&str>) -> Vec<Self> {
        let read: Vec<Self> = column.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let bounded =
            |one: Self| Self { first: one.first.into_iter().take(Self::NAMED).map(StuckEvent::bounded).collect(), ..one };
        read.into_iter().map(bounded).collect()
    }
}

impl StuckEvent {
    /// Copies the first 500 bytes of the error: the error of a trigger may be as long as a payload.
    #[must_use]
    pub fn new(seq: u64, event_id: Option<EventId>, error: &str, since: Timestamp) -> Self {
        let kept = cut(error, ERROR_BYTES);
        let ellipsis = if kept.len() < error.len() { "…" } else { "" };
        Self { seq, event_id, error: format!("{kept}{ellipsis}"), since }
    }

    /// With an error of at most 500 bytes, which takes no more memory.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        shorten(&mut self.error, ERROR_BYTES);
        self.error.shrink_to_fit();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_stuck_event_is_cut_once() {
        let now = Timestamp::from_micros(0);
        let long = StuckEvent::new(1, None, &"x".repeat(100_000), now);

        assert_eq!(long.error, format!("{}…", "x".repeat(ERROR_BYTES)));
        assert_eq!(long.clone().bounded(), long);
        assert_eq!(StuckEvent::new(1, None, "the order is archived", now).error, "the order is archived");
    }
}
