//! Due rows, claimed, into the cold queue.
//!
//! The poll is the truth; everything that wakes it early is a hint. It never rests while there is work and room for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::event::OwnerId;
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::queue::{Batches, Delivery, InFlight, Path, Queue};
use crate::settler::SettlerHandle;
use crate::store::{ClaimRequest, Claimed, Due, Settlement, Store, StoreError};
use crate::units::duration;
use crate::wake::Wake;

/// How the poller walks the table. Source: specification 10.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollerConfig {
    /// Longest rest between two polls. Default 5 s; above zero. It rests shorter when it knows of an event that is due sooner.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// Most events taken by a poll after a rest. Default 50; at least 1.
    pub batch_size: u32,
    /// Most events taken by each further poll while they come back full. Default 500; at least 1.
    pub drain_batch_size: u32,
    /// Leave alone what was inserted within this span. Default 0.
    #[serde(with = "duration")]
    pub skip_recent: Duration,
}

impl Default for PollerConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), batch_size: 50, drain_batch_size: 500, skip_recent: Duration::ZERO }
    }
}

impl PollerConfig {
    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.interval.is_zero() {
            faults.push(format!("{prefix}.interval is 0; it must be above zero"));
        }
        if self.batch_size == 0 {
            faults.push(format!("{prefix}.batch_size is 0; it must be at least 1"));
        }
        if self.drain_batch_size == 0 {
            faults.push(format!("{prefix}.drain_batch_size is 0; it must be at least 1"));
        }
        faults
    }
}

/// Walks the table.
pub(crate) struct Poller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) settler: SettlerHandle,
    pub(crate) wake: Arc<Wake>,
    pub(crate) batches: Arc<Batches>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
    pub(crate) max_claims: u32,
    pub(crate) config: PollerConfig,
}

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There may be more to take at once.
    Full,
    /// Everything due was taken.
    Drained,
    /// The queue has no room.
    NoRoom,
}

/// Parked events given back to time by one statement.
const UNPARK_BATCH: u32 = 1_000;

impl Poller {
    /// Polls until it is stopped. Only rests are cut short by a stop, never a statement.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.listeners.changes();
        changes.mark_changed();
        let mut batch_size = self.config.batch_size;
        let mut failing: Option<Duration> = None;
        while !*stopped.borrow() {
            let turn = match self.turn(batch_size, &mut changes).await {
                Ok(turn) => {
                    if failing.take().is_some() {
                        tracing::info!("the database answers the poller again");
                    }
                    turn
                }
                Err(error) => {
                    self.metrics.db_errors.increment();
                    if failing.is_none() {
                        tracing::error!(error = %crate::chain(&error), "the poller cannot claim events; trying again until it can");
                    }
                    let rest = failing.map_or(Duration::from_millis(100), |rest| (rest * 2).min(Duration::from_secs(2)));
                    failing = Some(rest);
                    let _ = tokio::time::timeout(rest, stopped.wait_for(|stopped| *stopped)).await;
                    continue;
                }
            };
            batch_size = if turn == Turn::Full { self.config.drain_batch_size } else { self.config.batch_size };
            tokio::select! {
                () = self.rest(turn) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
                Ok(()) = changes.changed(), if turn != Turn::Full => changes.mark_changed(),
            }
        }
    }

    async fn rest(&self, turn: Turn) {
        match turn {
            Turn::Full => tokio::task::yield_now().await,
            Turn::NoRoom => self.queue.cold_half_empty().await,
            Turn::Drained => self.wake.rest(Instant::now() + self.config.interval).await,
        }
    }

    /// One turn of the crank: unpark what has a listener now, claim, queue.
    async fn turn(&self, batch_size: u32, changes: &mut watch::Receiver<u64>) -> Result<Turn, StoreError> {
        if changes.has_changed().unwrap_or(false) || batch_size == self.config.batch_size {
            changes.mark_unchanged();
            self.unpark().await?;
        }
        let turn = self.claim(batch_size).await?;
        if turn == Turn::Drained
            && let Some(due) = self.store.next_due().await?
        {
            self.wake.within(due);
        }
        Ok(turn)
    }

    /// Also when nothing changed: an event may have been parked just after its listener came.
    async fn unpark(&self) -> Result<(), StoreError> {
        let routes = self.listeners.routes();
        while !routes.is_empty() && self.store.unpark(&routes, UNPARK_BATCH).await? == u64::from(UNPARK_BATCH) {}
        Ok(())
    }

    async fn claim(&self, batch_size: u32) -> Result<Turn, StoreError> {
        let (room, max_bytes) = self.queue.cold_room();
        if room == 0 {
            return Ok(Turn::NoRoom);
        }
        let limit = batch_size.min(u32::try_from(room).unwrap_or(u32::MAX));
        let request = ClaimRequest {
            owner: self.owner.clone(),
            lease: self.lease,
            limit,
            max_bytes,
            skip_recent: self.config.skip_recent,
            line: None,
        };
        // Taken before the statement is sent: by the database's clock the lease ends later than we believe, never earlier.
        let lease_end = Instant::now() + self.lease;
        let claimed = self.store.claim(&request).await?;
        let full = claimed.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let deliveries = self.accept(claimed, lease_end).await;
        let count = deliveries.len();
        let refused = self.queue.push(Path::Cold, deliveries);
        self.metrics.cold_enqueued.add(u64::try_from(count - refused.len()).unwrap_or(0));
        for delivery in refused {
            self.settler.send(delivery, Settlement::Released { after: Duration::ZERO }).await;
        }
        Ok(if full { Turn::Full } else { Turn::Drained })
    }

    /// Turns claims into deliveries; what can never be one is settled at once.
    async fn accept(&self, claimed: Vec<Claimed>, lease_end: Instant) -> Vec<Delivery> {
        let batch = self.batches.next();
        let mut deliveries = Vec::with_capacity(claimed.len());
        for claim in claimed {
            let fence = claim.fence;
            match self.judge(claim) {
                Err(settlement) => {
                    if let Settlement::Dead { error, .. } = &settlement {
                        tracing::error!(event.sequence = fence.sequence, error, "an event is dead");
                    }
                    self.settler.send_claim(fence, settlement).await;
                }
                Ok((event, deferrals)) => match self.in_flight.mark_until(event.id(), Some(fence), lease_end) {
                    Some(mark) => {
                        deliveries.push(Delivery { event: Arc::new(event), batch, path: Path::Cold, deferrals, mark });
                    }
                    // Our own earlier claim of it ended, but its listener is still at work: its outcome is fenced off, so look
                    // again a little later.
                    None => self.settler.send_claim(fence, Settlement::Released { after: Duration::from_secs(1) }).await,
                },
            }
        }
        deliveries
    }

    fn judge(&self, claim: Claimed) -> Result<(crate::event::Event, u32), Settlement> {
        let dead = |error: String| Settlement::Dead { error, counted: false, blocks: false };
        let event = claim.event.map_err(|why| dead(format!("the row cannot be read: {why}")))?;
        match claim.due {
            Due::In(after) => return Err(Settlement::Released { after }),
            Due::Expired => return Err(dead("expired: expires_at passed before it was done".to_owned())),
            Due::Now => {}
        }
        if claim.claims > self.max_claims {
            return Err(dead(format!("its host stopped {} times while delivering it", self.max_claims)));
        }
        Ok((event, claim.deferrals))
    }
}
