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
use crate::halving::{Halved, Halving, answers};
use crate::queue::Reserved;
use crate::recurring::Outage;
use crate::refusals::Refusals;
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
        let (outage, refused) = (Outage::default(), Refusals::default());
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
                self.look(&mut waiting, &refused).await.inspect_err(|error| self.metrics.db_error(error)),
                |error| tracing::warn!(%error, "claims could not be given back; trying again until they end"),
                || tracing::info!("claims can be given back again"),
            );
            if stop {
                return;
            }
        }
    }

    /// Looks for the rows once. What was seen, or has ended, waits no longer. Leaves out rows that rest after a refusal.
    async fn look(&self, waiting: &mut Vec<Unused>, refused: &Refusals<EventId>) -> Result<(), StoreError> {
        let now = Instant::now();
        waiting.retain(|unused| unused.until > now);
        let Some(owner) = waiting.first().map(|unused| unused.owner.clone()) else { return Ok(()) };
        let resting: HashSet<EventId> = refused.resting(now).into_iter().collect();
        let is_tried = |id: &EventId| !resting.contains(id);
        let ids: Vec<EventId> = waiting.iter().flat_map(|unused| &unused.ids).copied().filter(is_tried).collect();
        let free: Vec<EventId> = waiting.iter().filter_map(|unused| unused.free).filter(is_tried).collect();
        let mut seen = HashSet::new();
        let result = self.look_for(&owner, &ids, &mut seen, refused).await;
        let given_back = seen.len();
        // Under another owner: the poller of this host may have claimed them meanwhile, by a claim that looks like one of an insert.
        let result = result.and(self.look_for(&OwnerId::generate("none"), &free, &mut seen, refused).await);
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

    /// Gives back what `owner` claimed by an insert. Takes in those that need no second look. If the database refuses a row, because a
    /// trigger or a constraint of the table does, halving finds it, and the other claims are given back. The error is that of rows that were
    /// not tried.
    async fn look_for(
        &self,
        owner: &OwnerId,
        ids: &[EventId],
        seen: &mut HashSet<EventId>,
        refused: &Refusals<EventId>,
    ) -> Result<(), StoreError> {
        let mut all = Ok(());
        for ids in ids.chunks(BATCH) {
            let mut halving = Halving::new(ids);
            while let Some(part) = halving.next_part() {
                match self.store.give_back(owner, part).await {
                    Ok(more) if more.is_empty() => {}
                    Ok(more) => {
                        halving.accepted();
                        refused.accepted(more.iter().copied());
                        seen.extend(more);
                    }
                    Err(error) if self.must_give_up() => return Err(error),
                    Err(error) => halving.failed(part, error, answers(&*self.store)).await,
                }
            }
            let Halved { refused: found, failed } = halving.end();
            for (id, error) in found {
                self.metrics.db_error(&error);
                if refused.refuse(*id, Instant::now()) {
                    tracing::warn!(
                        event.id = %id, error = %crate::chain(&error),
                        "the database refuses to give back the claim of an event; other claims are given back"
                    );
                }
            }
            match failed {
                // Many rows of this batch are refused. The next batch may have fewer.
                Some(error) if error.may_concern_rows() => all = Err(error),
                Some(error) => return Err(error),
                None => {}
            }
        }
        all
    }
}
