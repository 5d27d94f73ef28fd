//! Taking and settling events without a host: what the database alone can do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::TransactionalStore;
use outbox::event::OwnerId;
use outbox::store::{ClaimRequest, Claimed, PARTITIONS, ReadRequest, Settled, Settlement};
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
        let (owner, lease) = (OwnerId::generate("bench"), Duration::from_secs(600));
        let held = self.store.keep_partitions(&owner, lease, PARTITIONS, PARTITIONS).await?;
        let partitions: Vec<u16> = held.iter().map(|partition| partition.number).collect();
        let request = ReadRequest {
            owner: owner.clone(),
            partitions: partitions.clone(),
            after: None,
            held: Vec::new(),
            busy: Vec::new(),
            limit: BATCH,
            max_bytes: MAX_BYTES,
            skip_recent: Duration::ZERO,
            order: None,
        };
        let rate = self.take_and_settle(self.events, &Settlement::Done, Taking::Reads(request)).await?;
        self.store.release_partitions(&owner, &held).await?;
        Ok(rate)
    }

    /// Claims this many events and settles all of them alike. Returns the rate.
    pub(super) async fn claim_and_settle(&self, events: u32, settlement: &Settlement) -> Result<f64, Error> {
        self.take_and_settle(events, settlement, Taking::Claims(claim_request(BATCH))).await
    }

    /// Takes batches until this many events were taken, and settles them at the same time. Returns the rate.
    async fn take_and_settle(&self, events: u32, settlement: &Settlement, mut taking: Taking) -> Result<f64, Error> {
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
            let batch = taking.next(&self.store).await?;
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
        Ok(f64::from(events) / started.elapsed().as_secs_f64())
    }
}

/// How batches are taken.
enum Taking {
    Claims(ClaimRequest),
    /// Each read begins where the last one ended.
    Reads(ReadRequest),
}

impl Taking {
    async fn next<S: TransactionalStore>(&mut self, store: &S) -> Result<Vec<Claimed>, outbox::StoreError> {
        match self {
            Self::Claims(request) => store.claim(request).await,
            Self::Reads(request) => {
                let read = store.read(request).await?;
                request.after = read.last().map(|last| last.position);
                Ok(read.into_iter().map(|read| read.event).collect())
            }
        }
    }
}

/// Claims at most this many events for a new owner.
pub(super) fn claim_request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        owner: OwnerId::generate("bench"),
        lease: Duration::from_secs(30),
        limit,
        max_bytes: MAX_BYTES,
        skip_recent: Duration::ZERO,
        order: None,
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
