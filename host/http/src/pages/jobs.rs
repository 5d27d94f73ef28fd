//! Jobs: replays and discards of many events, which run in the background and can be watched and stopped. In memory only; the
//! audit log has what they did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outbox::dead::ReplayLimits;
use outbox_event::Status;
use outbox_store::{Audit, DeadFilter, Filter, StoreError};
use tokio::sync::watch;

use crate::host::Host;

/// The most events of one statement; after each statement a job may stop.
const BATCH: u32 = 100;
/// How many jobs are remembered.
const KEPT: usize = 20;
/// How many jobs run at once.
const AT_ONCE: usize = 4;

/// What is done to many dead events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Replay,
    Discard,
}

impl Action {
    pub(super) fn of(path: &str) -> Option<Self> {
        [Self::Replay, Self::Discard].into_iter().find(|action| action.path() == path)
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard => "discard",
        }
    }

    /// At the beginning of a sentence.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Replay => "Replay",
            Self::Discard => "Discard",
        }
    }

    pub(super) const fn past(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Discard => "discarded",
        }
    }
}

/// All jobs, by number.
#[derive(Default)]
pub(super) struct Jobs(Mutex<BTreeMap<u64, Arc<Job>>>);

/// A job.
pub(super) struct Job {
    pub(super) action: Action,
    /// Which events it changes, in words; empty for all.
    pub(super) of: String,
    /// How many events matched at the start.
    pub(super) total: u64,
    /// Who started it.
    pub(super) actor: String,
    began: Instant,
    done: AtomicU64,
    stop: watch::Sender<bool>,
    ended: OnceLock<Ended>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Whole,
    /// All events were tried, and the database refuses to change some, or as many are refused as a replay steps over: what it said.
    Refused(String),
    Stopped,
    Failed(String),
}

/// What a job is to do.
pub(super) struct Order {
    pub(super) action: Action,
    pub(super) of: String,
    pub(super) total: u64,
    pub(super) filter: DeadFilter,
    /// Most events a second; `None` for as fast as it goes.
    pub(super) per_second: Option<u32>,
    pub(super) audit: Audit,
}

impl Jobs {
    /// Starts a job, and returns its number; `None` when too many are running.
    pub(super) fn begin(&self, order: Order, host: Host) -> Option<u64> {
        let job = Arc::new(Job {
            action: order.action,
            of: order.of.clone(),
            total: order.total,
            actor: order.audit.actor.clone(),
            began: Instant::now(),
            done: AtomicU64::new(0),
            stop: watch::Sender::new(false),
            ended: OnceLock::new(),
        });
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.values().filter(|job| job.ended().is_none()).count() >= AT_ONCE {
            return None;
        }
        // Random: a page that was opened before a restart must not stop another job.
        let number = rand::random();
        jobs.insert(number, job.clone());
        // A running job is never forgotten: it could not be stopped any more.
        while jobs.len() > KEPT
            && let Some(oldest) =
                jobs.iter().filter(|(_, job)| job.ended().is_some()).min_by_key(|(_, job)| job.began).map(|(number, _)| *number)
        {
            jobs.remove(&oldest);
        }
        drop(jobs);
        tokio::spawn(async move {
            let ended = match job.run(&order, &host).await {
                Ok(ended) => ended,
                Err(error) => {
                    tracing::warn!(
                        target: "outbox::http::pages::jobs",
                        error = %outbox_event::chain::chain(&error), done = job.done(),
                        "a replay or discard of many events ended early"
                    );
                    Ended::Failed(outbox_event::chain::chain(&error).to_string())
                }
            };
            host.tell_hosts().await;
            let _ = job.ended.set(ended);
        });
        Some(number)
    }

    /// The running jobs, the oldest first.
    pub(super) fn running(&self) -> Vec<(u64, Arc<Job>)> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running: Vec<_> =
            jobs.iter().filter(|(_, job)| job.ended().is_none()).map(|(number, job)| (*number, job.clone())).collect();
        drop(jobs);
        running.sort_by_key(|(_, job)| job.began);
        running
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

impl Job {
    /// How many events it has changed so far.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// `None` while it runs.
    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Ends the job after its current statement.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    fn is_to_end(&self, host: &Host) -> bool {
        *self.stop.borrow() || host.monitor.is_stopping()
    }

    /// Rests, or until the job must end.
    async fn rest(&self, rest: Duration, host: &Host) {
        let mut stop = self.stop.subscribe();
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            _ = stop.wait_for(|stop| *stop) => {}
            () = host.monitor.stopping() => {}
        }
    }

    async fn run(&self, order: &Order, host: &Host) -> Result<Ended, StoreError> {
        if self.is_to_end(host) {
            return Ok(Ended::Stopped);
        }
        match order.action {
            Action::Replay => self.replay(order, host).await,
            Action::Discard => self.discard_all(order, host).await,
        }
    }

    async fn replay(&self, order: &Order, host: &Host) -> Result<Ended, StoreError> {
        let limits = ReplayLimits { batch_size: BATCH, per_second: order.per_second, ..ReplayLimits::default() };
        let goes_on = |so_far| {
            self.done.store(so_far, Ordering::Relaxed);
            !self.is_to_end(host)
        };
        let refused = host.dead.replay_while(&order.filter, &limits, &order.audit, goes_on).await?.refused;
        if self.is_to_end(host) {
            return Ok(Ended::Stopped);
        }
        let Some(first) = refused.first.first() else { return Ok(Ended::Whole) };
        let events = outbox_event::units::count(refused.count, "event");
        let rest = if refused.gave_up { "; these are too many, and later events were not tried" } else { "" };
        Ok(Ended::Refused(format!("The database refuses to change {events}{rest}; seq {}: {}", first.seq, first.error)))
    }

    async fn discard_all(&self, order: &Order, host: &Host) -> Result<Ended, StoreError> {
        let batch = order.per_second.map_or(BATCH, |per_second| per_second.clamp(1, BATCH));
        loop {
            if self.is_to_end(host) {
                return Ok(Ended::Stopped);
            }
            if self.discard(order, batch, host).await? {
                return Ok(Ended::Whole);
            }
            if let Some(per_second) = order.per_second {
                self.rest(Duration::from_secs(1) * batch / per_second.max(1), host).await;
            }
        }
    }

    /// Deletes the first events that match, each with its own record in the audit log, until the job must end. An event that is
    /// replayed meanwhile and dies again is left alone. True when none matched: if others took all listed events, more may.
    async fn discard(&self, order: &Order, limit: u32, host: &Host) -> Result<bool, StoreError> {
        let listed = host.lasting.list(&listed(&order.filter), limit).await?;
        for record in &listed {
            if self.is_to_end(host) {
                return Ok(false);
            }
            let is_gone = host.lasting.discard(record.event_id, order.filter.dead_before, &order.audit).await?;
            self.done.fetch_add(u64::from(is_gone), Ordering::Relaxed);
        }
        Ok(listed.is_empty())
    }
}

/// The dead events of a filter as rows to list, oldest first.
pub(super) fn listed(filter: &DeadFilter) -> Filter {
    let DeadFilter { event_type, aggregate_type, aggregate_id, tenant_id, error, max_attempts, dead_after, dead_before } =
        filter.clone();
    Filter {
        status: Some(Status::Dead),
        event_type,
        aggregate_type,
        aggregate_id,
        tenant_id,
        error,
        max_attempts,
        finished_after: dead_after,
        finished_before: dead_before,
        ..Filter::default()
    }
}
