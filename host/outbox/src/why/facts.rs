//! The facts about one event, as the tables have them.

use super::by_hand::ByHand;
use crate::event::Route;
use crate::node::hosts;
use crate::store::{Filter, NodeRecord, Record, RouteRecord, Store, StoreError};
use crate::time::Timestamp;

/// How many steps a queue is followed to its head. Queues have one step unless something is wrong.
const LONGEST_QUEUE: usize = 100;
/// How many blocked aggregates are searched to count the events behind one.
const KEYS: u32 = 1_000;

/// Everything that decides the state of an event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// The event.
    pub record: Record,
    /// The present time by the database's clock, which decides what is due.
    pub now: Timestamp,
    /// The hosts, including those that have been gone for less than a day, as [`hosts`] returns them.
    pub nodes: Vec<NodeRecord>,
    /// The known routes, and their pauses.
    pub routes: Vec<RouteRecord>,
    /// The routes and patterns of relays.
    pub relays: Vec<Route>,
    /// The events that it waits behind, each behind the next; the head of the queue comes last.
    pub queue: Vec<Record>,
    /// How many later events of its aggregate wait behind it.
    pub waiting: u64,
    /// Manual changes that may have affected it.
    pub by_hand: ByHand,
}

impl Facts {
    /// An event's own facts, at `now` by the database's clock. All other facts are empty.
    #[must_use]
    pub fn new(record: Record, now: Timestamp) -> Self {
        Self {
            record,
            now,
            nodes: Vec::new(),
            routes: Vec::new(),
            relays: Vec::new(),
            queue: Vec::new(),
            waiting: 0,
            by_hand: ByHand::default(),
        }
    }

    /// Reads the facts about this event from the store. `relays` are the routes and patterns of the host's relays.
    ///
    /// # Errors
    /// The database's own.
    pub async fn gather(store: &dyn Store, record: Record, relays: Vec<Route>) -> Result<Self, StoreError> {
        let now = store.now().await?;
        Ok(Self {
            now,
            nodes: hosts(store).await?,
            routes: store.routes().await?,
            relays,
            queue: queue(store, &record).await?,
            waiting: waiting(store, &record).await?,
            by_hand: ByHand::read(store, &record, now).await?,
            record,
        })
    }
}

async fn queue(store: &dyn Store, record: &Record) -> Result<Vec<Record>, StoreError> {
    let mut queue: Vec<Record> = Vec::new();
    let mut behind = record.behind;
    while let Some(seq) = behind.filter(|_| queue.len() < LONGEST_QUEUE) {
        let only = Filter { after: seq.checked_sub(1), before: seq.checked_add(1), ..Filter::default() };
        let Some(earlier) = store.list(&only, 1).await?.pop() else { break };
        behind = earlier.behind;
        queue.push(earlier);
    }
    Ok(queue)
}

/// How many events wait behind it; 0 also if its aggregate is not among the first [`KEYS`] blocked ones.
async fn waiting(store: &dyn Store, record: &Record) -> Result<u64, StoreError> {
    if record.aggregate_id.is_none() {
        return Ok(0);
    }
    let keys = store.blocked_keys(KEYS).await?;
    Ok(keys.iter().filter(|key| key.seq == record.seq).map(|key| key.waiting).sum())
}
