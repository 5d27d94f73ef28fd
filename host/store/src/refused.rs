//! Outcomes that the database refuses, as a host lists them in its row.

use outbox_event::EventId;
use outbox_event::text::shorten;
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The outcomes that the database refuses to a host although it stores others. Each is tried again until it is stored; meanwhile the
/// host keeps its event, and calls no listener for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct RefusedOutcomes {
    /// How many there are.
    pub count: u32,
    /// The oldest of them, at most 20.
    pub first: Vec<RefusedOutcome>,
}

/// An outcome that the database refuses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct RefusedOutcome {
    /// The event's `seq`.
    pub seq: u64,
    /// The event; `None` for a row that cannot be read.
    pub event_id: Option<EventId>,
    /// The error of the database, at most 500 bytes.
    pub error: String,
    /// When it was refused first, by the host's clock.
    pub since: Timestamp,
}

/// The most bytes of an error in [`RefusedOutcome`], and of the error of a row that cannot be deleted.
pub(super) const ERROR_BYTES: usize = 500;

impl RefusedOutcomes {
    /// The most outcomes that are named.
    pub const NAMED: usize = 20;

    /// This many outcomes. Names the first ones.
    #[must_use]
    pub fn new(count: usize, first: impl IntoIterator<Item = RefusedOutcome>) -> Self {
        let first = first.into_iter().take(Self::NAMED).map(RefusedOutcome::bounded).collect();
        Self { count: u32::try_from(count).unwrap_or(u32::MAX), first }
    }

    /// The outcome of this event, if it is named.
    #[must_use]
    pub fn of(&self, seq: u64) -> Option<&RefusedOutcome> {
        self.first.iter().find(|one| one.seq == seq)
    }

    /// As JSON; `None` if nothing is refused.
    pub(super) fn column(&self) -> Option<String> {
        (self.count > 0).then(|| serde_json::to_string(self).expect("numbers and texts are JSON"))
    }

    /// Reads what a host wrote; empty if it cannot be read, because the host may be of another version.
    pub(super) fn read(column: Option<&str>) -> Self {
        let read: Self = column.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self { first: read.first.into_iter().take(Self::NAMED).map(RefusedOutcome::bounded).collect(), ..read }
    }
}

impl RefusedOutcome {
    fn bounded(mut self) -> Self {
        shorten(&mut self.error, ERROR_BYTES);
        self
    }
}
