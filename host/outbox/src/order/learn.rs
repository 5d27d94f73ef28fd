//! Learns from the table which events others wait behind.

use std::sync::Arc;
use std::time::Duration;

use super::Order;
use crate::metrics::Metrics;
use crate::partition::Partitions;
use crate::recurring::{Outage, Recurring};
use crate::store::{Store, StoreError};
use crate::wake::Wake;

/// Most blockers learned by one statement.
const PAGE: u32 = 1_000;
/// The rest between two pages: those of the first are looked at meanwhile.
const BETWEEN_PAGES: Duration = Duration::from_millis(250);
/// The rest after a failure.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// Learns the blockers of this host's partitions: when partitions are opened, since their last owner knew what we do not; and
/// then now and again, since a host may still set events aside that it claimed before it lost their partition, and die before
/// it lets them go.
///
/// Nothing waits for this: an event may be delivered before the blockers of its partition are known, since the read that returns an event
/// also returns which event it waits for.
pub(crate) struct Learner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) order: Arc<Order>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) metrics: Arc<Metrics>,
    /// How long to rest when all were learned.
    pub(crate) every: Duration,
    /// The last blocker that was learned; 0 to begin with the first.
    pub(crate) after: u64,
    pub(crate) outage: Outage,
}

impl Recurring for Learner {
    async fn run_once(&mut self) -> Duration {
        let last = self.outage.note(
            self.page().await.inspect_err(|error| self.metrics.db_error(error)),
            |error| tracing::error!(%error, "the events that others wait behind could not be learned; trying again"),
            || tracing::info!("the events that others wait behind can be learned again"),
        );
        let Some(last) = last else { return AFTER_A_FAILURE };
        self.after = last.unwrap_or(0);
        if last.is_some() { BETWEEN_PAGES } else { self.every }
    }

    async fn woken(&mut self) {
        self.partitions.wait_until_opened().await;
        self.after = 0;
    }
}

impl Learner {
    /// Learns the next blockers. Returns the last of them when there may be more.
    async fn page(&self) -> Result<Option<u64>, StoreError> {
        let partitions = self.partitions.open().all;
        if partitions.is_empty() {
            return Ok(None);
        }
        if !self.order.has_room_to_learn() {
            return Ok(Some(self.after));
        }
        let blockers = self.store.blockers(&partitions, self.after, PAGE).await?;
        let full = blockers.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
        let last = blockers.last().map(|blocker| blocker.sequence).filter(|_| full);
        if self.order.learn(blockers) {
            self.wake.now();
        }
        Ok(last)
    }
}
