//! Rows that the database refuses to change.

use outbox_event::EventId;
use outbox_event::text::shorten;
use serde::{Deserialize, Serialize};

use super::stuck::ERROR_BYTES;

/// A row, and the event in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowId {
    /// Its `seq`.
    pub seq: u64,
    /// Its event; `None` if the ID is not valid.
    pub event_id: Option<EventId>,
}

/// Rows that a purge could not delete, or a replay could not change. The next one tries them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct RefusedRows {
    /// How many there are.
    pub count: u64,
    /// The oldest of them, at most 20.
    pub first: Vec<RefusedRow>,
    /// Whether the purge or replay ended early because there are more than 1,000: rows that the database would change may be left.
    pub gave_up: bool,
}

/// A row that the database does not delete or change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct RefusedRow {
    /// The event's `seq`.
    pub seq: u64,
    /// The event; `None` for a row that cannot be read.
    pub event_id: Option<EventId>,
    /// The error of the database, at most 500 bytes.
    pub error: String,
}

impl RefusedRows {
    /// The most rows that are named.
    pub const NAMED: usize = 20;
    /// The most rows that one purge or replay steps over.
    pub const MOST: u64 = 1_000;

    /// Adds a row, with the error of the database. Beyond [`MOST`](Self::MOST) the caller must end.
    pub fn add(&mut self, row: RowId, error: &str) {
        self.count += 1;
        self.gave_up |= self.count > Self::MOST;
        if self.first.len() < Self::NAMED {
            let mut error = error.to_owned();
            shorten(&mut error, ERROR_BYTES);
            self.first.push(RefusedRow { seq: row.seq, event_id: row.event_id, error });
        }
    }

    /// Adds the rows of another batch or request.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.gave_up |= other.gave_up || self.count > Self::MOST;
        self.first.extend(other.first);
        self.first.truncate(Self::NAMED);
    }

    /// Whether the database refused no row.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_rows_are_named_and_a_thousand_are_stepped_over() {
        let mut refused = RefusedRows::default();
        for seq in 0..RefusedRows::MOST {
            refused.add(RowId { seq, event_id: None }, "no");
        }
        assert_eq!((refused.count, refused.first.len(), refused.gave_up), (1_000, 20, false));

        refused.add(RowId { seq: 9_999, event_id: None }, "no");
        assert!(refused.gave_up);
        assert_eq!(refused.first[0].seq, 0, "the oldest are named");
    }
}
