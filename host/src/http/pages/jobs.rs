//! Replays and discards of many events: each goes on by itself, can be looked at and stopped. In memory only; what was done is in the
//! audit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::act::Action;
use crate::event::Status;
use crate::http::host::Host;
use crate::store::{Audit, DeadFilter, Filter, Store, StoreError};

/// Most events of one statement, and of one look at whether it is to stop.
const BATCH: u32 = 100;
/// How many are remembered.
const KEPT: usize = 20;
/// How many go on at once.
const AT_ONCE: usize = 4;

/// All of them, by number.
#[derive(Default)]
pub(super) struct Jobs(Mutex<BTreeMap<u64, Arc<Job>>>);

/// One of them.
pub(super) struct Job {
    pub(super) action: Action,
    /// Which events, in words; empty for all.
    pub(super) of: String,
    /// How many there were at the start.
    pub(super) total: u64,
    done: AtomicU64,
    stop: AtomicBool,
    ended: OnceLock<Ended>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Whole,
    Stopped,
    Failed(String),
}

/// What is to be done.
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
    /// Begins, and gives the number to look at it by; `None` when too many go on already.
    pub(super) fn begin(&self, order: Order, host: Host) -> Option<u64> {
        let job = Arc::new(Job {
            action: order.action,
            of: order.of.clone(),
            total: order.total,
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            ended: OnceLock::new(),
        });
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.values().filter(|job| job.ended().is_none()).count() >= AT_ONCE {
            return None;
        }
        let number = jobs.last_key_value().map_or(1, |(last, _)| last + 1);
        jobs.insert(number, job.clone());
        // Never one that goes on: it could not be stopped any more.
        while jobs.len() > KEPT
            && let Some(oldest) = jobs.iter().find(|(_, job)| job.ended().is_some()).map(|(number, _)| *number)
        {
            jobs.remove(&oldest);
        }
        drop(jobs);
        tokio::spawn(async move {
            let ended = match job.run(&order, &host).await {
                Ok(ended) => ended,
                Err(error) => {
                    tracing::warn!(error = %crate::chain(&error), done = job.done(), "a replay or discard of many events ended early");
                    Ended::Failed(crate::chain(&error).to_string())
                }
            };
            host.tell_hosts().await;
            let _ = job.ended.set(ended);
        });
        Some(number)
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

impl Job {
    /// How many it has been so far.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// `None` while it goes on.
    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Ends it after the batch that is under way.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    async fn run(&self, order: &Order, host: &Host) -> Result<Ended, StoreError> {
        let store = &*host.store;
        let batch = order.per_second.map_or(BATCH, |per_second| per_second.clamp(1, BATCH));
        loop {
            if self.stop.load(Ordering::Relaxed) || host.monitor.is_stopping() {
                return Ok(Ended::Stopped);
            }
            let count = match order.action {
                Action::Replay => store.replay_batch(&order.filter, batch, &order.audit).await?,
                Action::Discard => discard(&order.filter, batch, &order.audit, store).await?,
            };
            self.done.fetch_add(count, Ordering::Relaxed);
            // A discard may find that others took what it had listed, so only nothing at all is the end of it.
            let is_last = if order.action == Action::Replay { count < u64::from(batch) } else { count == 0 };
            if is_last {
                return Ok(Ended::Whole);
            }
            if let Some(per_second) = order.per_second {
                tokio::time::sleep(Duration::from_secs(1) * batch / per_second.max(1)).await;
            }
        }
    }
}

/// Deletes the first of those that match, each with a note of its own in the audit.
async fn discard(filter: &DeadFilter, limit: u32, audit: &Audit, store: &dyn Store) -> Result<u64, StoreError> {
    let mut count = 0;
    for record in store.list(&listed(filter), limit).await? {
        count += u64::from(store.discard(record.event_id, audit).await?);
    }
    Ok(count)
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
