//! Learns from the table which events others wait behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Order, Partitions};
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};
use crate::wake::Wake;

/// Most blockers learned by one statement.
const PAGE: u32 = 1_000;
/// The rest between two pages: those of the first are looked at meanwhile.
const BETWEEN_PAGES: Duration = Duration::from_millis(250);
/// The rest after a failure.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

/// Learns the blockers of this node's partitions: when partitions are opened, since their last owner knew what we do not; and
/// then now and again, since a host may still set events aside that it claimed before it lost their partition, and die before
/// it lets them go.
///
/// Nothing waits for this: an event may be claimed and delivered before its partition's blockers are known, since the claim
/// itself tells what it waits for.
pub(crate) struct Learner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) order: Arc<Order>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) metrics: Arc<Metrics>,
    /// How long to rest when all were learned.
    pub(crate) every: Duration,
}

impl Learner {
    /// Learns until it is stopped. Only rests are cut short by a stop, never a statement.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut after = 0;
        let mut failing = false;
        while !*stopped.borrow() {
            let rest = match self.page(after).await {
                Ok(last) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("the events that others wait behind can be learned again");
                    }
                    after = last.unwrap_or(0);
                    if last.is_some() { BETWEEN_PAGES } else { self.every }
                }
                Err(error) => {
                    self.metrics.db_error(&error);
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!(error = %crate::chain(&error), "the events that others wait behind could not be learned; trying again");
                    }
                    AFTER_A_FAILURE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = self.partitions.opened() => after = 0,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
    }

    /// Learns those after this one. Returns the last of them when there may be more.
    async fn page(&self, after: u64) -> Result<Option<u64>, StoreError> {
        let partitions = self.partitions.open();
        if partitions.is_empty() {
            return Ok(None);
        }
        if !self.order.has_room_to_learn() {
            return Ok(Some(after));
        }
        let blockers = self.store.blockers(&partitions, after, PAGE).await?;
        let full = blockers.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
        let last = blockers.last().map(|blocker| blocker.sequence).filter(|_| full);
        if self.order.learn(blockers) {
            self.wake.now();
        }
        Ok(last)
    }
}
