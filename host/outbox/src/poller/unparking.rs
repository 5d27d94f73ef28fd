//! Makes parked events due again once their route has a listener or is resumed.

use std::time::Duration;

use tokio::time::Instant;

use super::intake::{Holds, Intake};
use super::reader::Reader;
use crate::event::{Fence, Route};
use crate::halving::{Halved, Halving, answers};
use crate::refusals::Refusals;
use crate::store::StoreError;

/// The most parked routes that one turn checks, one by one.
const PARKED_ROUTES_PER_TURN: usize = 16;
/// The most parked events that one turn unparks.
const UNPARK_BATCH: usize = 1_000;
/// The shortest time between two searches for parked events while no listener changes. An event may be parked just after its listener was
/// registered.
const UNPARK_MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The state of unparking, which is kept from turn to turn.
#[derive(Debug)]
pub(crate) struct Unparking {
    /// Whether the listeners have changed since events were last unparked.
    changed: bool,
    /// Whether there may be more to unpark at once: the last batch was full.
    has_more: bool,
    /// When the last search for parked events began.
    looked_at: Instant,
    /// Whether a scan of all parked routes is in progress, and when it last advanced.
    walks: bool,
    walked_at: Instant,
    /// The parked route that the scan checked last. `None` to start at the first.
    after: Option<Route>,
    /// Whether the last statement that unparks events failed. The next turn then sends it again, even if no event is parked. Otherwise a
    /// read-only database would seem healthy whenever a scan has nothing to write.
    failed: bool,
    /// The routes whose parked events the database refuses to change.
    refused: Refusals<Route>,
}

impl Default for Unparking {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            changed: false,
            has_more: false,
            looked_at: now,
            walks: true,
            walked_at: now,
            after: None,
            failed: false,
            refused: Refusals::default(),
        }
    }
}

impl Unparking {
    /// Whether there may be more to unpark at once.
    pub(super) fn has_more(&self) -> bool {
        self.has_more || self.changed
    }

    /// How long until the first refused route is retried. `None` if none is refused now.
    pub(super) fn next_retry(&self) -> Option<Duration> {
        self.refused.next_retry(Instant::now())
    }

    /// Notes that the listeners have changed.
    pub(super) fn note_change(&mut self) {
        (self.changed, self.walks, self.after) = (true, true, None);
    }

    /// Whether to unpark although nothing woke the poller. A poller with a full queue never rests, and must still unpark events.
    pub(super) fn is_due(&self, interval: Duration) -> bool {
        let rest = if self.after.is_some() { UNPARK_MIN_INTERVAL } else { interval.max(UNPARK_MIN_INTERVAL) };
        self.has_more() || self.looked_at.elapsed() >= rest
    }

    /// Unparks a batch. The batch has no more events than this host can claim at once: another host without a listener for them could
    /// claim the rest, and would park it again. In the ordered modes, only the host that holds an event's partition delivers it, so only
    /// that host unparks it. Returns whether the database was asked.
    pub(super) async fn step(&mut self, reader: &mut Reader) -> Result<bool, StoreError> {
        let limit = reader.room().events.min(UNPARK_BATCH);
        let Reader { intake, schedule, .. } = reader;
        self.walks |= self.walked_at.elapsed() >= schedule.interval().max(UNPARK_MIN_INTERVAL);
        if limit == 0 {
            return Ok(false);
        }
        let partitions = intake.order.as_ref().map(|_| intake.partitions.open().all);
        if partitions.as_ref().is_some_and(Vec::is_empty) {
            (self.changed, self.has_more) = (false, false);
            return Ok(false);
        }
        let began_at = Instant::now();
        let (mut routes, mut found, mut asked) = (intake.listeners.open_routes(), false, false);
        if intake.listeners.has_patterns() || (gives_up(intake) && self.walks) {
            asked = true;
            match self.routes_to_unpark(intake).await? {
                Some(free) => {
                    found = !free.is_empty();
                    routes.extend(free);
                }
                None if !self.failed => routes.clear(),
                None => {}
            }
            routes.sort_unstable();
            routes.dedup();
            // The next scan begins when a listener changes or the interval has passed. If relays have patterns, every step scans.
            self.walks = self.after.is_some();
            self.walked_at = Instant::now();
            if self.walks {
                // With a few routes in each interval, a scan of many routes would take hours.
                intake.wake.within(UNPARK_MIN_INTERVAL);
            }
        }
        let resting = self.refused.resting(began_at);
        routes.retain(|route| !resting.contains(route));
        self.has_more = !routes.is_empty();
        if self.has_more {
            asked = true;
            let (unparked, failed) = self.unpark(intake, &routes, partitions.as_deref(), limit).await;
            self.failed = failed.is_some();
            self.has_more = self.failed || unparked.len() >= limit;
            if intake.order.is_none() {
                // At once: the host that holds the partitions of these events may have no listener for them, and would park them again.
                intake.claim(&unparked, &mut Holds::new()).await?;
            } else if !unparked.is_empty() {
                schedule.cursor.begin_again();
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        self.has_more |= found && self.walks;
        // Unchanged after a failure, so that the next turn that may unpark tries again.
        (self.looked_at, self.changed) = (began_at, false);
        Ok(asked)
    }

    /// Unparks events of these routes, `limit` at most. If the database refuses a change to an event of one route, because a trigger or a
    /// constraint of the table does, the events of the other routes are unparked: the route is found by halving, and rests. The error is
    /// that of routes that were not tried.
    async fn unpark(
        &self,
        intake: &Intake,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: usize,
    ) -> (Vec<Fence>, Option<StoreError>) {
        let (mut halving, mut unparked) = (Halving::new(routes), Vec::new());
        while unparked.len() < limit {
            let Some(part) = halving.next_part() else { break };
            let room = u32::try_from(limit - unparked.len()).expect("at most a thousand");
            match intake.store.unpark(&intake.owner, part, partitions, room).await {
                Ok(more) => {
                    halving.accepted();
                    self.refused.accepted(part.iter().cloned());
                    unparked.extend(more);
                }
                Err(error) => halving.failed(part, error, answers(&*intake.store)).await,
            }
        }
        let Halved { refused, failed } = halving.end();
        refused.iter().for_each(|(route, error)| self.refuse(route, error, intake));
        (unparked, failed)
    }

    /// Lets a route rest whose parked events the database refuses to change.
    fn refuse(&self, route: &Route, error: &StoreError, intake: &Intake) {
        intake.metrics.db_error(error);
        if self.refused.refuse(route.clone(), Instant::now()) {
            tracing::error!(
                %route, error = %crate::chain(error),
                "the database refuses to unpark a route's events; retrying after 1 s, later after up to 60 s; other routes are unparked"
            );
        }
    }

    /// Parked routes that are not among the registered routes, and whose events would not be parked now. Either a relay's pattern covers
    /// the route, or no listener answers it and its pause or its broken plugin was removed. Checks a few routes in each turn, from where
    /// the last turn ended, because there may be any number of them. `None` if no event is parked at all.
    async fn routes_to_unpark(&mut self, intake: &Intake) -> Result<Option<Vec<Route>>, StoreError> {
        let (mut free, from_the_first) = (Vec::new(), self.after.is_none());
        for looked_at in 0..PARKED_ROUTES_PER_TURN {
            self.after = intake.store.parked_route(self.after.as_ref()).await?;
            let Some(route) = &self.after else {
                if from_the_first && looked_at == 0 {
                    return Ok(None);
                }
                break;
            };
            let listeners = &intake.listeners;
            let is_given_up = || gives_up(intake) && listeners.awaited(route).is_none();
            if listeners.paused(route).is_none() && (listeners.find(route).is_some() || is_given_up()) {
                free.push(route.clone());
            }
        }
        Ok(Some(free))
    }
}

/// Whether an event without a listener, and without a reason to wait for one, is given up rather than parked.
fn gives_up(intake: &Intake) -> bool {
    !intake.rules.park_unroutable
}
