//! The queues of aggregates: whose turn it is, and who waits behind whom.

use std::collections::HashSet;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use outbox_event::{EventId, Status};
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};

/// The queues of aggregates, where events are delivered in order.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// The heads of the queues that these events stand in: for each that waits for earlier events of its aggregate, its `seq`
    /// and that of the first of them. Events whose way is free are left out.
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError>;

    /// The events that others of these partitions wait behind (see [`Settlement::Behind`](outbox_event::Settlement::Behind)), in order of
    /// their `seq`: those after the `seq` `after`, at most `limit`.
    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError>;

    /// Lets events that wait behind these be due now, oldest first, at most `limit` behind each; of those alone whose turn it
    /// is: no earlier event of their aggregate is waited for, so they are not set aside again at once.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError>;

    /// The aggregates whose events wait behind one that is not resolved, longest queue first, at most `limit`.
    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError>;
}

/// An event that others wait behind, by their rows: its own may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Its `seq`.
    pub sequence: u64,
    /// Of what kind their aggregate is.
    pub aggregate_type: String,
    /// Which one it is.
    pub aggregate_id: String,
}

/// What became of events that others wait behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unblocked {
    /// Nothing waits behind these any more.
    pub cleared: Vec<u64>,
    /// Some were let go from behind these, and others wait there still.
    pub left: Vec<u64>,
}

/// Which earlier events of its aggregate an event waits for. One whose `available_at` is still to come is never waited for: it
/// joins the queue when its time comes. The same holds for an event that its writer delayed by `due_at` alone, which only MySQL, MariaDB
/// and SQLite accept. An event without an aggregate id waits for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Every one that is NEW or RETRY, or DEAD and blocks.
    Unresolved,
    /// Every one that is NEW: one that failed is overtaken.
    Untried,
    /// None: nothing blocks anything.
    Nothing,
}

/// An aggregate whose events wait behind one that is not resolved.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct BlockedKey {
    /// The kind of aggregate.
    pub aggregate_type: String,
    /// Which one.
    pub aggregate_id: String,
    /// The `seq` of the event that they wait behind.
    pub seq: u64,
    /// Its id; `None` when it is gone already, and the others about to go on.
    pub event_id: Option<EventId>,
    /// Its type.
    pub event_type: Option<String>,
    /// Its status.
    pub status: Option<Status>,
    /// When it is tried again; `None` when it waits for something that is not time.
    pub due_at: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How many wait behind it.
    pub waiting: u64,
}

/// The statements of a dialect.
pub(super) trait Waiting: Store {
    /// The first that waits behind each of these, if any.
    fn firsts(&self, blockers: &[u64]) -> impl Future<Output = Result<Vec<(u64, Option<u64>)>, StoreError>> + Send;

    /// Lets the first `limit` go from behind each of these.
    fn let_go(&self, blockers: &[u64], limit: u32) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What [`KeyStore::unblock`] does. No transaction is needed: whose turn it is keeps it, or is found again at the next call.
pub(super) async fn unblock<S: Waiting>(
    store: &S,
    blockers: &[u64],
    waits_for: WaitsFor,
    limit: u32,
) -> Result<Unblocked, StoreError> {
    let mut firsts = Firsts::new(some(store, blockers).await?);
    if !firsts.waiting.is_empty() && waits_for != WaitsFor::Nothing {
        let waiting: Vec<u64> = firsts.waiting.iter().map(|(_, first)| *first).collect();
        firsts.leave_out(&store.heads(&waiting, waits_for).await?);
    }
    let turn: Vec<u64> = firsts.waiting.iter().map(|(blocker, _)| *blocker).collect();
    if !turn.is_empty() && limit > 0 {
        store.let_go(&turn, limit).await?;
    }
    Ok(firsts.after(some(store, &turn).await?))
}

async fn some<S: Waiting>(store: &S, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
    if blockers.is_empty() { Ok(Vec::new()) } else { store.firsts(blockers).await }
}

/// Events that others wait behind, each with the first that does.
#[derive(Debug)]
struct Firsts {
    waiting: Vec<(u64, u64)>,
    /// Those behind whom nobody waits any more.
    cleared: Vec<u64>,
}

impl Firsts {
    fn new(firsts: Vec<(u64, Option<u64>)>) -> Self {
        let mut this = Self { waiting: Vec::new(), cleared: Vec::new() };
        for (blocker, first) in firsts {
            match first {
                Some(first) => this.waiting.push((blocker, first)),
                None => this.cleared.push(blocker),
            }
        }
        this
    }

    /// Leaves out those who wait for somebody still: events with the heads of their queues.
    fn leave_out(&mut self, heads: &[(u64, u64)]) {
        let wait: HashSet<u64> = heads.iter().map(|(event, _)| *event).collect();
        self.waiting.retain(|(_, first)| !wait.contains(first));
    }

    /// What came of it: `firsts` are those behind them by now.
    fn after(self, firsts: Vec<(u64, Option<u64>)>) -> Unblocked {
        let now = Self::new(firsts);
        let mut cleared = self.cleared;
        cleared.extend(now.cleared);
        cleared.sort_unstable();
        Unblocked { cleared, left: now.waiting.into_iter().map(|(blocker, _)| blocker).collect() }
    }
}
