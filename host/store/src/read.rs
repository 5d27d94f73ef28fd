//! Reading due events without claiming them.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use outbox_event::{OwnerId, Route};

use super::{Claimed, StoreError, WaitsFor};

/// Reading the events that an owner's partitions have due.
#[async_trait]
pub trait ReadStore: Send + Sync {
    /// Due events of partitions that the owner holds by the database's clock, in the order of their positions; as one queue in the
    /// order of their `seq`. Nothing is written: an event is the owner's as long as its partition is, which is proved again when
    /// its outcome is stored. Events that are held under a claim are left out until that has ended.
    ///
    /// A read sees what was committed before it began: an event whose outcome is stored meanwhile is among the events that it
    /// returns.
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError>;

    /// As [`read`](Self::read), but leaves out payloads and headers, so that each event is an error. For a read that failed because the
    /// database cannot return the payload of a row. A store may ignore `max_bytes`.
    async fn read_without_payloads(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError>;

    /// How long until the next event of the owner's partitions can be read, by the database's clock: zero when one can be read now,
    /// `None` when none waits. Of the events that are due, those are left out whose `seq` is in `held` or whose route is in `busy`,
    /// and one that is held under a claim counts from the end of that claim. An event that is not yet due counts whatever its `seq`
    /// and route.
    ///
    /// This is a hint: it may be too soon, and too late where very many due events are held under claims. A partition counts as
    /// long as its owner is named in it, also when its lease has ended: then the answer is zero though a read returns nothing.
    ///
    /// # Errors
    /// The database's own. Nothing is written, so a repeat is safe.
    async fn next_to_read(&self, owner: &OwnerId, held: &[u64], busy: &[Route]) -> Result<Option<Duration>, StoreError>;

    /// How long until the next event of any partition is due: zero if one is due, `None` if no event waits.
    async fn next_due(&self) -> Result<Option<Duration>, StoreError>;
}

/// What to read.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// Who reads.
    pub owner: OwnerId,
    /// Only events of these partitions, as far as the owner holds them.
    pub partitions: Vec<u16>,
    /// Only events behind this position; `None` to begin at the front.
    pub after: Option<Position>,
    /// The `seq` of events that are left out: the reader has them in hand.
    pub held: Vec<u64>,
    /// Routes whose events are left out, since their listeners are busy: as many events wait for them as may. Only where no order
    /// is kept: elsewhere other events would wait for one that is left out.
    pub busy: Vec<Route>,
    /// Most events; at least 1.
    pub limit: u32,
    /// No further event once those read have this many payload bytes together.
    pub max_bytes: usize,
    /// Leave alone what was inserted within this span; zero for nothing. A `created_at` that is farther in the future, by another clock
    /// or in local time, is no reason to wait.
    pub skip_recent: Duration,
    /// Where order is kept; `None` for any event, without looking at others.
    pub order: Option<ReadOrder>,
}

/// Reads that keep an order. [`Claimed::behind`] says of each event whether it waits for an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// A queue for each aggregate: the same events as without order. Of the earlier events of its aggregate that an event has to
    /// wait for, it waits for the last that is not queued, and where all are queued, for the last. In place of an event of the same
    /// read, a store may name one that is neither queued nor read.
    ByAggregate {
        /// Which earlier events it has to wait for.
        waits_for: WaitsFor,
        /// The `seq` of the events in the queues of this host. One that is in hand and not here is about to be set aside.
        queued: Vec<u64>,
    },
    /// One queue of all events, in the order of their `seq`: the first that are NEW or RETRY and whose `available_at` has come, up
    /// to one that cannot be delivered (a living claim holds it, it was deferred, it is parked). Events in hand are stepped over.
    /// Nothing unless the owner holds all partitions by the database's clock; the partitions and the position of the request are
    /// not looked at.
    OneForAll,
}

/// Where an event stands among those that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Since when it has been due.
    pub due_at: Timestamp,
    /// Its `seq`.
    pub sequence: u64,
}

/// An event that was read.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadEvent {
    /// The event, with the fence under which its outcome is stored, and `claims` as they were.
    pub event: Claimed,
    /// The partition that it belongs to.
    pub partition: u16,
    /// Its place in the order of reading.
    pub position: Position,
    /// Whether it was held under a claim that has ended: whoever had it may be at work still, so it must be claimed before it is
    /// delivered.
    pub was_claimed: bool,
}

impl ReadEvent {
    /// What a read found; for stores of another kind.
    #[must_use]
    pub const fn new(event: Claimed, partition: u16, position: Position, was_claimed: bool) -> Self {
        Self { event, partition, position, was_claimed }
    }
}
