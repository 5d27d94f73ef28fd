//! Gives back the claims that rows were inserted with, where no hot copy uses them.
//!
//! Whether the transaction of such a row was committed, nobody told us: it may be open still. So these claims do not go with
//! the outcomes, which would wait for that transaction, or be taken for outcomes that somebody else's claim fenced off. They
//! are given back where the row can be seen, again and again, until it is seen or the claim has ended.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Settler;
use crate::event::{EventId, OwnerId};
use crate::queue::Reserved;
use crate::recurring::Outage;
use crate::store::StoreError;

/// Most claims given back by one statement.
const BATCH: usize = 1_000;
/// The rest after the first look; doubled up to the second.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(250);

/// Claims that rows were inserted with, and that nobody will use.
#[derive(Debug)]
pub(crate) struct Unused {
    pub(crate) owner: OwnerId,
    pub(crate) ids: Vec<EventId>,
    /// A row of the same transaction without a claim: when it can be seen, the poller is woken.
    pub(crate) free: Option<EventId>,
    /// When the claims have ended: then the hosts that have their partitions may take the rows.
    pub(crate) until: Instant,
    /// The room that was kept for them in the hot queue. It bounds how many claims may wait here.
    pub(crate) _room: Reserved,
}

impl Settler {
    /// Gives claims back until the host is stopped; those that wait then are looked at once more.
    pub(super) async fn give_back(&self, mut unused: mpsc::UnboundedReceiver<Unused>, mut stopped: watch::Receiver<bool>) {
        let mut waiting: Vec<Unused> = Vec::new();
        let mut rest = FIRST_LOOK;
        let outage = Outage::default();
        loop {
            let stop = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => true,
                received = unused.recv() => match received {
                    Some(received) => {
                        waiting.push(received);
                        rest = FIRST_LOOK;
                        false
                    }
                    None => true,
                },
                () = tokio::time::sleep(rest), if !waiting.is_empty() => {
                    rest = (rest * 2).min(LAST_LOOK);
                    false
                }
            };
            while let Ok(one) = unused.try_recv() {
                waiting.push(one);
            }
            outage.note(
                self.look(&mut waiting).await.inspect_err(|error| self.metrics.db_error(error)),
                |error| tracing::warn!(%error, "claims could not be given back; trying again until they end"),
                || tracing::info!("claims can be given back again"),
            );
            if stop {
                return;
            }
        }
    }

    /// Looks for the rows once. What was seen, or has ended, waits no longer.
    async fn look(&self, waiting: &mut Vec<Unused>) -> Result<(), StoreError> {
        let now = Instant::now();
        waiting.retain(|unused| unused.until > now);
        let Some(owner) = waiting.first().map(|unused| unused.owner.clone()) else { return Ok(()) };
        let ids: Vec<EventId> = waiting.iter().flat_map(|unused| &unused.ids).copied().collect();
        let free: Vec<EventId> = waiting.iter().filter_map(|unused| unused.free).collect();
        let mut seen = HashSet::new();
        let result = self.look_for(&owner, &ids, &mut seen).await;
        let given_back = seen.len();
        // Asked for nobody: our poller may have claimed them meanwhile, by a claim that looks like one of an insert.
        let result = result.and(self.look_for(&OwnerId::generate("nobody"), &free, &mut seen).await);
        if !seen.is_empty() {
            self.metrics.dispatch_released.add(u64::try_from(given_back).unwrap_or(0));
            for unused in waiting.iter_mut() {
                unused.ids.retain(|id| !seen.contains(id));
                unused.free = unused.free.filter(|id| !seen.contains(id));
            }
            waiting.retain(|unused| !unused.ids.is_empty() || unused.free.is_some());
            self.wake.now();
            self.notifier.notify();
        }
        result
    }

    /// Gives back what `owner` claimed by an insert. Takes in those that need no second look.
    async fn look_for(&self, owner: &OwnerId, ids: &[EventId], seen: &mut HashSet<EventId>) -> Result<(), StoreError> {
        for ids in ids.chunks(BATCH) {
            seen.extend(self.store.give_back(owner, ids).await?);
        }
        Ok(())
    }
}
