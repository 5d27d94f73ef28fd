//! Taking and settling events without a host: what the database alone can do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::TransactionalStore;
use outbox::event::{Fence, OwnerId};
use outbox::store::{Claimed, Node, PARTITIONS, ReadRequest, Settled, Settlement};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::stage::{Bench, Error, WHAT_TO_DO};

/// Most events and bytes that are taken at once, as in a host.
const BATCH: u32 = 500;
const MAX_BYTES: usize = 32 << 20;
/// How many batches may wait to be settled while the next one is taken, as in a host.
const AHEAD: usize = 2;
/// How many batches are settled at once, as in a host.
const SETTLERS: usize = 2;
const LEASE: Duration = Duration::from_secs(600);

/// The rates of writing events, and of claiming and settling them.
pub(super) struct WriteAndClaim {
    pub(super) write_per_s: f64,
    pub(super) claims_per_s: f64,
}

impl<S: TransactionalStore + Clone> Bench<S> {
    /// Writes events, then claims each row and settles it.
    pub(super) async fn write_and_claim(&self) -> Result<WriteAndClaim, Error> {
        let write_per_s = self.fill().await?;
        let claims_per_s = self.claim_and_settle(self.events, &Settlement::Done).await?;
        Ok(WriteAndClaim { write_per_s, claims_per_s })
    }

    /// Fills the table, then reads events without a claim, as the owner of all partitions, and settles them. Returns the rate.
    pub(super) async fn read(&self) -> Result<f64, Error> {
        self.fill().await?;
        self.take_and_settle(self.events, &Settlement::Done, Claims::None).await
    }

    /// Reads this many events, claims each and settles all of them alike. Returns the rate.
    pub(super) async fn claim_and_settle(&self, events: u32, settlement: &Settlement) -> Result<f64, Error> {
        self.take_and_settle(events, settlement, Claims::All).await
    }

    /// Takes batches as the owner of all partitions until this many events were taken, and settles them at the same time. Returns the
    /// rate.
    async fn take_and_settle(&self, events: u32, settlement: &Settlement, claims: Claims) -> Result<f64, Error> {
        let mut reader = Reader::new(&self.store, claims).await?;
        let started = Instant::now();
        let (taken, to_settle) = mpsc::channel::<Vec<Claimed>>(AHEAD);
        let to_settle = Arc::new(Mutex::new(to_settle));
        let mut settlers = JoinSet::new();
        for _ in 0..SETTLERS {
            settlers.spawn(settle_all(self.store.clone(), to_settle.clone(), settlement.clone()));
        }
        drop(to_settle);
        let mut left = events;
        while left > 0 {
            let batch = reader.next(&self.store).await?;
            if batch.is_empty() {
                let found = events - left;
                let why = format!("only {found} of {events} events were found; {WHAT_TO_DO}");
                return Err(why.into());
            }
            left = left.saturating_sub(u32::try_from(batch.len())?);
            // Fails only when the settlers have failed; their error is the one to report.
            if taken.send(batch).await.is_err() {
                break;
            }
        }
        drop(taken);
        while let Some(settled) = settlers.join_next().await {
            settled??;
        }
        let rate = f64::from(events) / started.elapsed().as_secs_f64();
        reader.end(&self.store).await?;
        Ok(rate)
    }
}

/// Whether events are claimed after they are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claims {
    None,
    All,
}

/// Reads batches as the owner of all partitions.
pub(super) struct Reader {
    claims: Claims,
    /// Each read begins where the last one ended.
    request: ReadRequest,
}

impl Reader {
    pub(super) async fn new<S: TransactionalStore>(store: &S, claims: Claims) -> Result<Self, outbox::StoreError> {
        let owner = OwnerId::generate("bench");
        store.heartbeat(&Node::new(owner.clone(), "bench", "single_node", env!("CARGO_PKG_VERSION")), LEASE).await?;
        let held = store.keep_partitions(&owner, PARTITIONS, PARTITIONS).await?;
        let request = ReadRequest {
            owner,
            partitions: held.iter().map(|partition| partition.number).collect(),
            after: None,
            held: Vec::new(),
            busy: Vec::new(),
            limit: BATCH,
            max_bytes: MAX_BYTES,
            skip_recent: Duration::ZERO,
            order: None,
        };
        Ok(Self { claims, request })
    }

    pub(super) async fn next<S: TransactionalStore>(&mut self, store: &S) -> Result<Vec<Claimed>, outbox::StoreError> {
        let read = store.read(&self.request).await?;
        self.request.after = read.last().map(|last| last.position);
        let events: Vec<Claimed> = read.into_iter().map(|read| read.event).collect();
        if self.claims == Claims::None || events.is_empty() {
            return Ok(events);
        }
        let fences: Vec<Fence> = events.iter().map(|event| event.fence).collect();
        store.claim(&self.request.owner, LEASE, &fences).await
    }

    /// Gives the partitions back, and deletes the row of this host.
    pub(super) async fn end<S: TransactionalStore>(self, store: &S) -> Result<(), outbox::StoreError> {
        store.leave(&self.request.owner).await
    }
}

async fn settle_all<S: TransactionalStore>(
    store: S,
    taken: Arc<Mutex<mpsc::Receiver<Vec<Claimed>>>>,
    settlement: Settlement,
) -> Result<(), outbox::StoreError> {
    loop {
        let received = taken.lock().await.recv().await;
        let Some(batch) = received else { return Ok(()) };
        let settled: Vec<Settled> = batch.iter().map(|claimed| Settled::new(claimed.fence, settlement.clone())).collect();
        store.settle(&settled).await?;
    }
}
