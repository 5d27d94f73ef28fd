//! Renews the claims of events in flight. An event that was only read has no claim: it is held by its partition.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::overdue::Visits;
use super::runtime_lag::RuntimeLag;
use crate::event::{EventId, Fence};
use crate::halving::{Halved, Halving, answers};
use crate::metrics::Metrics;
use crate::partition::{Partitions, own_lease_end};
use crate::queue::InFlight;
use crate::recurring::{Outage, Recurring};
use crate::refusals::Refusals;
use crate::store::{Store, StoreError};

/// Most claims renewed by one statement.
const BATCH: usize = 2_000;
/// The rest after a failure; a third of the lease if that is shorter.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Renews at every third of the lease, until it is stopped. One failed renewal does no harm, even if it waited for a server that fell
/// silent: with the default lease, the next one begins 8 s before the claims end. The claim of an event whose call is overdue is not
/// renewed, so that another host may take the event over. A host that let its lease end renews none until it takes partitions again, or can
/// read and store again.
pub(super) struct ClaimKeeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) visits: Arc<Visits>,
    pub(super) lag: Arc<RuntimeLag>,
    pub(super) partitions: Arc<Partitions>,
    pub(super) lease: Duration,
    pub(super) is_ordered: bool,
    pub(super) metrics: Arc<Metrics>,
    /// The claims that the database refuses to renew.
    pub(super) refused: Refusals<Fence>,
    pub(super) outage: Outage,
}

impl Recurring for ClaimKeeper {
    fn first_rest(&self) -> Duration {
        self.lease / 3
    }

    async fn run_once(&mut self) -> Duration {
        let now = Instant::now();
        let overdue = self.visits.overdue(now);
        self.visits.log_overdue(now, &self.lag);
        if let Some(since) = now.checked_sub(self.lease).filter(|_| !self.is_ordered) {
            // A lease after they should have ended: where order is kept, the next of the queue waits for them.
            let threads = tokio::runtime::Handle::current().metrics().num_workers();
            let stuck = self.visits.to_repeat(since, threads);
            stuck.iter().for_each(|(id, fence)| self.in_flight.give_up(id, *fence));
        }
        let resting: HashSet<Fence> = self.refused.resting(now).into_iter().collect();
        let is_left_out = |(id, fence): &(EventId, Fence)| {
            overdue.contains(&(*id, Some(*fence))) || resting.contains(fence) || self.partitions.lets_claims_end()
        };
        let mut held = self.in_flight.held();
        held.retain(|claim| !is_left_out(claim));
        // Neighbours in the table are renewed together, and which claims a batch has does not depend on a hash.
        held.sort_unstable_by_key(|(_, fence)| fence.sequence);
        // Claims that the database refused before come last: finding them again takes time.
        let (refused, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|(_, fence)| self.refused.knows(fence));
        let (mut all, mut is_any_renewed) = (Ok(()), false);
        for claims in others.chunks(BATCH).chain(refused.chunks(BATCH)) {
            all = self.renew_each(claims, &mut is_any_renewed).await.and(all);
        }
        let renewed = self.outage.note(
            all,
            |error| tracing::error!(%error, "claims could not be renewed; trying again"),
            || tracing::info!("claims are renewed again"),
        );
        let rest = rest(self.lease, now.elapsed(), renewed.is_none());
        // A refused claim is tried again before it ends.
        let shortest = RETRY_AFTER.min(self.lease / 3);
        self.refused.next_retry(Instant::now()).map_or(rest, |next| rest.min(next.max(shortest)))
    }
}

impl ClaimKeeper {
    /// Renews claims. If the database refuses some of them, because a trigger or a constraint of the table does, or if one of them ends the
    /// connection, halving finds them, and the others are renewed. Returns the error of claims that were not tried.
    async fn renew_each(&self, claims: &[(EventId, Fence)], is_any_renewed: &mut bool) -> Result<(), StoreError> {
        // The others would end before the next renewals, however many are refused.
        let mut halving = Halving::new(claims).finding_up_to(self.refused.free_places());
        if *is_any_renewed {
            // The table takes renewals: what fails alone is refused.
            halving.accepted();
        }
        while let Some(part) = halving.next_part() {
            match self.renew(part).await {
                Ok(true) => {
                    *is_any_renewed = true;
                    halving.accepted();
                }
                Ok(false) => {}
                Err(error) => {
                    self.metrics.db_error(&error);
                    halving.failed(part, error, answers(&*self.store)).await;
                }
            }
        }
        let Halved { refused, failed } = halving.end();
        for ((id, fence), error) in refused {
            if self.refused.refuse(*fence, Instant::now()) {
                tracing::error!(
                    event.id = %id, event.sequence = fence.sequence, error = %crate::chain(&error),
                    "the database refuses to renew the claim of an event; other claims are renewed"
                );
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Renews claims by one statement. Returns whether it renewed one of them.
    async fn renew(&self, claims: &[(EventId, Fence)]) -> Result<bool, StoreError> {
        let fences: Vec<Fence> = claims.iter().map(|(_, fence)| *fence).collect();
        let end = own_lease_end(Instant::now(), self.lease);
        let renewed = self.store.renew(&fences, self.lease).await?;
        let (held, locked): (HashSet<u64>, HashSet<u64>) =
            (renewed.held.into_iter().collect(), renewed.locked.into_iter().collect());
        for (id, fence) in claims.iter().filter(|(_, fence)| !locked.contains(&fence.sequence)) {
            self.in_flight.renewed(*id, *fence, held.contains(&fence.sequence).then_some(end));
        }
        self.refused.accepted(fences.iter().filter(|fence| held.contains(&fence.sequence)).copied());
        Ok(!held.is_empty())
    }
}

/// The rest after renewals that took this long. The next renewals begin a third of the lease after the beginning of these, or soon after a
/// failure.
fn rest(lease: Duration, took: Duration, has_failed: bool) -> Duration {
    let third = lease / 3;
    let shortest = RETRY_AFTER.min(third);
    if has_failed { shortest } else { third.saturating_sub(took).max(shortest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatcher::DispatcherConfig;

    const SECOND: Duration = Duration::from_secs(1);
    /// The longest that a statement which keeps leases waits for its answer.
    const SILENCE: Duration = Duration::from_secs(10);

    #[test]
    fn renewal_that_met_a_silent_server_is_repeated_before_the_claims_end() {
        let (lease, renewed_at) = (DispatcherConfig::default().lease, Instant::now());

        let silent_at = renewed_at + rest(lease, Duration::ZERO, false);
        let repeated_at = silent_at + SILENCE + rest(lease, SILENCE, true);

        assert!(repeated_at + 5 * SECOND < own_lease_end(renewed_at, lease), "there is time for a new connection");
    }

    #[test]
    fn renewals_begin_at_each_third_of_the_lease_and_rest_between() {
        let lease = 30 * SECOND;
        let rests = [0, 4, 10, 60].map(|took| rest(lease, took * SECOND, false).as_secs());
        assert_eq!(rests, [10, 6, 1, 1]);
        assert_eq!(rest(SECOND, Duration::ZERO, true), SECOND / 3, "no longer than without a failure");
    }
}
