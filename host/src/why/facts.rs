//! Everything that the table knows of one event.

use super::by_hand::ByHand;
use crate::event::Route;
use crate::store::{Filter, NodeRecord, Record, RouteRecord, Store, StoreError};
use crate::time::Timestamp;

/// How far a queue is followed to its head. Queues are one step long unless something is wrong with them.
const LONGEST_QUEUE: usize = 100;
/// How many blocked aggregates are looked through for how many events wait behind one.
const KEYS: u32 = 1_000;

/// Everything that decides where an event stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// The event.
    pub record: Record,
    /// The present time by the database's clock, which decides what is due.
    pub now: Timestamp,
    /// The hosts, those included that have been gone for less than a day.
    pub nodes: Vec<NodeRecord>,
    /// The routes that are known, and their pauses.
    pub routes: Vec<RouteRecord>,
    /// What relays take: routes and patterns.
    pub relays: Vec<Route>,
    /// The event that it waits behind, the one that that waits behind, and so on: the head of the queue comes last.
    pub queue: Vec<Record>,
    /// How many later events of its aggregate wait behind it.
    pub waiting: u64,
    /// What was done by hand that touches it.
    pub by_hand: ByHand,
}

impl Facts {
    /// Asks the store for what it knows of this event. `relays` are those of the host that is meant.
    ///
    /// # Errors
    /// The database's own.
    pub async fn gather(store: &dyn Store, record: Record, relays: Vec<Route>) -> Result<Self, StoreError> {
        Ok(Self {
            now: store.now().await?,
            nodes: store.nodes().await?,
            routes: store.routes().await?,
            relays,
            queue: queue(store, &record).await?,
            waiting: waiting(store, &record).await?,
            by_hand: ByHand::read(store, &record).await?,
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

/// How many wait behind it; 0 also when too many aggregates are blocked to be looked through.
async fn waiting(store: &dyn Store, record: &Record) -> Result<u64, StoreError> {
    if record.aggregate_id.is_none() {
        return Ok(0);
    }
    let keys = store.blocked_keys(KEYS).await?;
    Ok(keys.iter().filter(|key| key.seq == record.seq).map(|key| key.waiting).sum())
}
