//! Steps that people take by hand, and those that tidy up.

use outbox::event::Fence;
use outbox::store::{DeadFilter, DeadStore, PARTITIONS, PurgeBatch, PurgeRequest, PurgeStore, PurgeTarget, Record, RouteStore};
use support::Database;

use super::compare::agree;
use super::parts::{DeadChoice, span};
use super::play::{AGGREGATE_IDS, AGGREGATE_TYPES, EVENT_TYPES, Player, audit, route, said};
use super::step::Step;
use super::table::Fault;
use crate::common::{replay_batch, retry_now};

impl<D: Database> Player<'_, D> {
    pub(super) async fn by_hand(&mut self, step: &Step) -> Result<(), Fault> {
        self.tick().await;
        let who = audit(true);
        match step {
            Step::Replay { event } => {
                let id = self.event(*event);
                let replayed = said("replay", self.store.replay(id, &who).await)?;
                agree("replayed", self.table.replay(id, &who), replayed)
            }
            Step::ReplayBatch { filter, limit } => {
                let (theirs, ours) = self.dead_filters(filter).await;
                let replayed = said("replay_batch", replay_batch(&self.store, &theirs, *limit, &who).await)?;
                agree("replayed", self.table.replay_batch(&ours, &theirs, *limit, &who), replayed)
            }
            Step::RetryNow { max_attempts, after, limit } => {
                let waiting = said("count_waiting", self.store.count_waiting(*max_attempts).await)?;
                agree("waiting for another attempt", self.table.count_waiting(*max_attempts), waiting)?;
                let retried = said("retry_now", retry_now(&self.store, *max_attempts, *after, *limit, &who).await)?;
                let expected = self.table.retry_now(*max_attempts, *after, *limit, &who);
                agree("retried now", expected, (retried.count, retried.last))
            }
            Step::Discard { event } => {
                let id = self.event(*event);
                let discarded = said("discard", self.store.discard(id, None, &who).await)?;
                agree("discarded", self.table.discard(id, &who), discarded)
            }
            Step::Skip { event } => {
                let id = self.event(*event);
                let skipped = said("skip", self.store.skip(id, &who).await)?;
                agree("skipped", self.table.skip(id, &who), skipped)
            }
            Step::Pause { route: names, reason } => {
                let (route, who) = (route(*names), audit(*reason));
                let paused = said("pause", self.store.pause(&route, &who).await)?;
                agree("paused", self.table.pause(&route, &who), paused)
            }
            Step::Resume { route: names } => {
                let route = route(*names);
                let resumed = said("resume", self.store.resume(&route, &who).await)?;
                agree("resumed", self.table.resume(&route, &who), resumed)
            }
            Step::Remember { routes } => {
                let routes: Vec<_> = routes.iter().map(|names| route(*names)).collect();
                said("remember_routes", self.store.remember_routes(&routes, &[]).await)?;
                self.table.remembered.extend(routes);
                Ok(())
            }
            other => self.tidy(other).await,
        }
    }

    async fn tidy(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::Unpark { routes, limit } => {
                let mut routes: Vec<_> = routes.iter().map(|names| route(*names)).collect();
                routes.sort_unstable();
                routes.dedup();
                let owner = self.owner(*limit as usize);
                // Of every other partition at times.
                let of = limit.is_multiple_of(2).then(|| (0..PARTITIONS).step_by(2).collect::<Vec<u16>>());
                let mut unparked = said("unpark", self.store.unpark(&owner, &routes, of.as_deref(), *limit).await)?;
                unparked.sort_unstable_by_key(|fence| fence.sequence);
                let rows = self.list().await?;
                let was_parked = |row: &&Record| self.table.rows.get(&row.seq).is_some_and(|row| row.parked.is_some());
                let mut freed: Vec<u64> =
                    rows.iter().filter(was_parked).filter(|row| row.parked.is_none()).map(|row| row.seq).collect();
                freed.sort_unstable();
                self.table.unpark(&owner, &routes, of.as_deref(), *limit, &freed)?;
                let as_it_is = |seq: &u64| Fence::new(*seq, 0, self.table.rows[seq].claim_seq);
                agree("unparked", freed.iter().map(as_it_is).collect::<Vec<_>>(), unparked)
            }
            Step::Purge { status, older_than, limit } => {
                let (theirs, ours) = self.clocks().await;
                let (theirs, ours) = (theirs.minus(span(*older_than)), ours.minus(span(*older_than)));
                let purgeable = said("count_purgeable", self.store.count_purgeable(*status, theirs).await)?;
                agree("purgeable", self.table.count_purgeable(*status, ours), purgeable)?;
                let target = PurgeTarget::Finished { status: *status, finished_before: theirs };
                let batch = said("purge", self.store.purge(&PurgeRequest::first(target, *limit)).await)?;
                let rows = self.list().await?;
                let is_gone = |seq: &u64| rows.iter().all(|row| row.seq != *seq);
                let gone: Vec<u64> = self.table.rows.keys().copied().filter(is_gone).collect();
                let expected = self.table.purge(*status, ours, *limit, &gone)?;
                self.agree_batch(expected, batch)
            }
            Step::PurgeUndelivered { older_than, limit } => {
                let target = PurgeTarget::Undelivered { older_than: span(*older_than) };
                let batch = said("purge", self.store.purge(&PurgeRequest::first(target, *limit)).await)?;
                let expected = self.table.purge_undelivered(span(*older_than), *limit);
                self.agree_batch(expected, batch)
            }
            other => Err(format!("{other:?} is nothing that is done by hand")),
        }
    }

    fn agree_batch(&self, expected: PurgeBatch, found: PurgeBatch) -> Result<(), Fault> {
        let same_times =
            self.times.same_option(expected.first, found.first) && self.times.same_option(expected.last, found.last);
        if expected.count == found.count && same_times && found.remaining.is_empty() {
            return Ok(());
        }
        Err(format!("purged: expected {expected:?}, the database said {found:?}"))
    }

    /// A filter of dead events by the database's clock, and by the table's.
    pub(super) async fn dead_filters(&mut self, choice: &DeadChoice) -> (DeadFilter, DeadFilter) {
        let half = span(1) / 2;
        let (theirs, ours) = self.clocks().await;
        let by = |now: outbox::time::Timestamp| DeadFilter {
            event_type: choice.event_type.map(|number| EVENT_TYPES[number].to_owned()),
            aggregate_type: choice.aggregate_type.map(|number| AGGREGATE_TYPES[number].to_owned()),
            aggregate_id: choice.aggregate_id.map(|number| AGGREGATE_IDS[number].to_owned()),
            tenant_id: choice.tenant.then(|| "t1".to_owned()),
            // Both stand in the errors of these traces, in letters of their own case.
            error: choice.error.map(|number| ["luck", "it's"][number].to_owned()),
            max_attempts: choice.max_attempts,
            dead_after: choice.dead_within.map(|hours| now.minus(span(hours) + half)),
            dead_before: choice.dead_before.then(|| now.minus(half)),
        };
        (by(theirs), by(ours))
    }
}
