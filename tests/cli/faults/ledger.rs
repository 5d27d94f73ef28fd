//! The events that were written, and every delivery of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Repeats, SICK};

/// The most events that a failure names.
const NAMED: usize = 5;

/// A route of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Relayed to a receiver that no fault disturbs.
    Calm,
    /// Relayed to a receiver that faults disturb.
    Rough,
    /// Delivered to the plugin `recorder`.
    Called,
}

impl Route {
    pub(super) const ALL: [Self; 3] = [Self::Calm, Self::Rough, Self::Called];

    pub(super) const fn aggregate_type(self) -> &'static str {
        match self {
            Self::Calm => "Calm",
            Self::Rough => "Rough",
            Self::Called => "Account",
        }
    }
}

/// How the transaction of an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Committed,
    RolledBack,
    /// The answer to COMMIT was lost.
    Unknown,
    /// Committed, and then deleted by hand before it was delivered.
    Withdrawn,
}

#[derive(Clone, Copy, Debug)]
struct Delivery {
    host: usize,
    /// `None` for a call of the plugin, whose time is not compared.
    at: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    route: Route,
    /// `None` while the transaction is open.
    end: Option<(End, Instant)>,
    deliveries: Vec<Delivery>,
    /// How many deliveries it had at the last check.
    judged: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// The IDs of deliveries of events that were never written.
    unwritten: Mutex<BTreeSet<String>>,
}

impl Ledger {
    /// Records an event before its INSERT: it may be delivered before COMMIT has returned.
    pub(super) fn begin(&self, id: &str, route: Route) {
        let entry = Entry { route, end: None, deliveries: Vec::new(), judged: None };
        lock(&self.entries).insert(id.to_owned(), entry);
    }

    pub(super) fn end(&self, id: &str, end: End) {
        if let Some(entry) = lock(&self.entries).get_mut(id) {
            entry.end = Some((end, Instant::now()));
        }
    }

    /// A receiver has taken an event.
    pub(super) fn delivered(&self, id: &str, host: usize) {
        let delivery = Delivery { host, at: Some(Instant::now()) };
        match lock(&self.entries).get_mut(id) {
            Some(entry) => entry.deliveries.push(delivery),
            None => {
                lock(&self.unwritten).insert(id.to_owned());
            }
        }
    }

    /// All calls of the plugin so far, with their hosts.
    pub(super) fn set_calls(&self, calls: BTreeMap<String, Vec<usize>>) {
        let mut entries = lock(&self.entries);
        for (id, hosts) in calls {
            match entries.get_mut(&id) {
                Some(entry) => entry.deliveries = hosts.into_iter().map(|host| Delivery { host, at: None }).collect(),
                None => {
                    lock(&self.unwritten).insert(id);
                }
            }
        }
    }

    /// The undelivered events were deleted by hand.
    pub(super) fn withdraw_undelivered(&self) {
        for entry in lock(&self.entries).values_mut().filter(|entry| entry.deliveries.is_empty()) {
            if let Some((end @ (End::Committed | End::Unknown), _)) = &mut entry.end {
                *end = End::Withdrawn;
            }
        }
    }

    pub(super) fn is_delivered(&self, id: &str) -> bool {
        lock(&self.entries).get(id).is_some_and(|entry| !entry.deliveries.is_empty())
    }

    /// How many calm events that were committed since then were delivered by a healthy host.
    pub(super) fn healthy_deliveries(&self, since: Instant) -> usize {
        let entries = lock(&self.entries);
        let later = entries.values().filter(|entry| entry.is_calm_since(since));
        later.filter(|entry| entry.deliveries.iter().any(|delivery| delivery.host != SICK)).count()
    }

    /// The 99th percentile of the time from commit to the first delivery, of the calm events that were committed in this span and whose
    /// first delivery was by a healthy host. `None` without such an event.
    pub(super) fn p99(&self, from: Instant, to: Instant) -> Option<Duration> {
        let entries = lock(&self.entries);
        let calm = entries.values().filter(|entry| entry.is_calm_since(from));
        let mut latencies: Vec<Duration> = calm
            .filter_map(|entry| {
                let (_, committed) = entry.end.filter(|(_, at)| *at <= to)?;
                let first = entry.deliveries.first().filter(|delivery| delivery.host != SICK)?;
                Some(first.at?.saturating_duration_since(committed))
            })
            .collect();
        latencies.sort_unstable();
        latencies.get(latencies.len() * 99 / 100).copied()
    }

    /// Compares what was written with what was delivered. Nothing may be in flight. Returns a summary.
    ///
    /// # Errors
    /// If events are lost, delivered after a rollback, or repeated without an excuse. Each event is reported once.
    pub(super) fn check(&self, repeats: Repeats, odd: &str) -> Result<String, String> {
        let mut entries = lock(&self.entries);
        let (mut lost, mut phantoms, mut forbidden) = (Vec::new(), Vec::new(), Vec::new());
        let (mut once, mut allowed) = (0_usize, 0_usize);
        for (id, entry) in entries.iter_mut() {
            let deliveries = entry.deliveries.len();
            if entry.judged.replace(deliveries) == Some(deliveries) {
                continue;
            }
            match entry.end {
                Some((End::Committed, _)) if deliveries == 0 => lost.push(id.clone()),
                Some((End::RolledBack, _)) if deliveries > 0 => phantoms.push(id.clone()),
                _ if deliveries < 2 => once += deliveries,
                _ if repeats.allow(id, odd, entry.deliveries.iter().map(|delivery| delivery.host)) => allowed += 1,
                _ => forbidden.push(id.clone()),
            }
        }
        drop(entries);
        let unwritten: Vec<String> = std::mem::take(&mut *lock(&self.unwritten)).into_iter().collect();
        let problems = [
            (lost, "lost"),
            (phantoms, "delivered though they were rolled back"),
            (forbidden, "delivered twice without an excuse"),
            (unwritten, "delivered though they were never written"),
        ];
        let problems: Vec<String> = problems.into_iter().filter_map(|(ids, what)| some_of(&ids, what)).collect();
        if problems.is_empty() {
            Ok(format!("{once} events delivered once, {allowed} repeated as allowed"))
        } else {
            Err(problems.join("; "))
        }
    }
}

impl Entry {
    fn is_calm_since(&self, since: Instant) -> bool {
        self.route == Route::Calm && self.end.is_some_and(|(end, at)| end == End::Committed && at >= since)
    }
}

fn some_of(ids: &[String], what: &str) -> Option<String> {
    let named = ids.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!ids.is_empty()).then(|| format!("{} events {what}, such as {named}", ids.len()))
}

/// A step of the test that failed meanwhile does not matter: the next fault is tried.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
