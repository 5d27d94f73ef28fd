//! The lines of a record: one JSON object each.

use outbox::EventId;
use serde::{Deserialize, Serialize};

/// One step, when it was taken, and by whom.
///
/// `{"at":1763720197123456,"node":"writer-1","what":"committed","transaction":"writer-1/7"}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Microseconds since 1970, by the clock of the machine that all processes share.
    pub at: i64,
    /// Which process.
    pub node: String,
    /// What it did.
    #[serde(flatten)]
    pub step: Step,
}

/// What a process did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Step {
    /// A writer is about to write these events, in one transaction: recorded before the first statement. If nothing more is heard
    /// of the transaction, nobody knows how it ended.
    Intent {
        /// Its name, no other's.
        transaction: String,
        /// In the order of writing.
        events: Vec<Written>,
    },
    /// The database confirmed the commit.
    Committed {
        /// Which one.
        transaction: String,
        /// What the database numbered its events with, in the order of the intent; empty when the writer was not told.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sequences: Vec<u64>,
    },
    /// The writer rolled back: recorded before it asks the database to, so that a kill in between leaves no doubt.
    RolledBack {
        /// Which one.
        transaction: String,
    },
    /// The database did not confirm the commit.
    Unknown {
        /// Which one.
        transaction: String,
    },
    /// A listener had the event.
    Delivered(Delivery),
}

/// An event, as its writer knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its id.
    pub event_id: EventId,
    /// What it happened to, if that is one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// Whether it was asked for later: then it comes when it is due, and has no place in the order of its aggregate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delayed: bool,
}

/// What events happen to, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Aggregate {
    /// Of what kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Which one.
    pub id: String,
}

/// One call of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The event.
    pub event_id: EventId,
    /// What it happened to, if that is one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// The database's number; 0 when the listener was not told.
    pub sequence: u64,
    /// Under which claim (`claim_seq`).
    pub fence: u64,
    /// 1 on the first attempt.
    pub attempt: u32,
    /// What the listener was about to answer. Recorded before it does: a host that is killed in between repeats it.
    pub ending: Ending,
}

/// How a listener ends a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The event is finished.
    Done,
    /// Never again.
    Dead,
    /// It failed, counted as an attempt.
    Failed,
    /// Later, not counted.
    Deferred,
}

impl Ending {
    /// Whether the event comes to the listener no more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead)
    }
}
