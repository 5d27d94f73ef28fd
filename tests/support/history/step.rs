//! The lines of a record: one JSON object each.

use std::time::Duration;

use outbox::store::Record;
use outbox::{EventId, Status};
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
    /// A listener is called: recorded as the first thing that it does.
    Began(Delivery),
    /// A listener is about to answer. A call whose host was killed has a beginning alone.
    Ended(Ended),
    /// Somebody killed a host, stopped it for a while, or cut it off; recorded when that was over.
    Fault(Fault),
    /// The table at the end, when nothing was left to do.
    Table {
        /// Every row.
        rows: Vec<Row>,
    },
}

/// An event, as its writer knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its id.
    pub event_id: EventId,
    /// What it happened to, if that is one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// Its place among the events of its aggregate, by the count of whoever writes them one after the other: nothing that the
    /// outbox said. Places of transactions that were rolled back stay empty.
    pub place: u64,
    /// Microseconds since 1970 before which it must not come, for an event that was asked for later: it comes when it is due,
    /// and has no place in the order of its aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<i64>,
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

/// The beginning of one call of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The event.
    pub event_id: EventId,
    /// What it happened to, if that is one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// The database's number; 0 when the listener was not told.
    pub sequence: u64,
    /// Which delivery of the event it is: the number of its fence.
    pub fence: u64,
    /// 1 on the first attempt.
    pub attempt: u32,
}

/// The end of one call of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The event.
    pub event_id: EventId,
    /// Under which claim.
    pub fence: u64,
    /// What the listener is about to answer: a host that is killed before it has stored that repeats the call.
    pub ending: Ending,
    /// How much later the listener wants to be called again, in milliseconds; `None` leaves it to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
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

/// What somebody did to a host. It excuses calls that come again, of those events alone that the host had in its hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which host, by the name under which its calls are recorded.
    pub host: String,
    /// What was done.
    pub kind: FaultKind,
    /// When it began, in microseconds since 1970. It was over when its line was recorded.
    pub from: i64,
    /// What the host held by the table, while it could change nothing.
    pub held: Held,
}

/// What can be done to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It ended in the middle, with all its calls.
    Killed,
    /// It was stopped for a while and goes on as if nothing had been, in the middle of its calls too.
    Stalled,
    /// It runs, but does not reach its database.
    CutOff,
}

/// What a host had in its hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// These events, each under this claim.
    Claims(Vec<(EventId, u64)>),
    /// Nobody could look, for the database itself was away: whatever its calls had left to store, see [`UNSEEN`].
    Unseen,
}

/// An outcome older than this was stored, also where nobody could look.
pub const UNSEEN: Duration = Duration::from_secs(5);

/// What the table says of an event in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The event.
    pub event_id: EventId,
    /// Its number.
    pub sequence: u64,
    /// Where it stands.
    pub status: Status,
    /// Counted failures.
    pub attempts: u32,
    /// Times the listener asked for later.
    pub deferrals: u32,
    /// The `claim_seq` under which its outcome was written; of an unfinished event, as it is now.
    pub fence: u64,
}

impl Delivery {
    /// The `claim_seq` of its row as it was claimed, without the epoch of its partition.
    pub(super) fn claim_seq(&self) -> u64 {
        self.fence & u64::from(u32::MAX)
    }
}

impl From<&Record> for Row {
    fn from(record: &Record) -> Self {
        Self {
            event_id: record.event_id,
            sequence: record.seq,
            status: record.status,
            attempts: record.attempts,
            deferrals: record.deferrals,
            // The outcome raised it by one.
            fence: record.claim_seq - u64::from(matches!(record.status, Status::Done | Status::Dead)),
        }
    }
}
