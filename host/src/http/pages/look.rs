//! What the pages know of the table: one look for all of them, taken again only when it is old enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::event::{Headers, Status};
use crate::http::cached::{OLDEST, YOUNGEST, rest};
use crate::store::{Filter, NodeRecord, Record, RouteRecord, Stats, Store, StoreError};
use crate::time::{Timestamp, system_clock};

/// How long a page waits for the database before it shows what it knew.
const PATIENCE: Duration = Duration::from_secs(3);
/// A look that takes longer is taken for visitors only.
const DEAR: Duration = Duration::from_secs(1);
/// How many dead events are grouped by what went wrong: the newest ones.
pub(super) const SAMPLE: u32 = 500;
/// How many of them are read at once.
const AT_ONCE: u32 = 50;

/// What the table held at one moment.
#[derive(Debug)]
pub(super) struct Look {
    /// The moment, by the database's clock.
    pub(super) at: Timestamp,
    pub(super) taken: Instant,
    pub(super) stats: Stats,
    /// Every route with its counts.
    pub(super) routes: Vec<RouteRecord>,
    pub(super) nodes: Vec<NodeRecord>,
    /// The newest dead events, at most [`SAMPLE`].
    pub(super) dead: Vec<Record>,
}

/// What is known now: the last look, and whether the database still answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) look: Option<Arc<Look>>,
    pub(super) gone: Option<Gone>,
}

/// The database does not answer.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    /// Since when, by this host's clock.
    pub(super) since: Timestamp,
    /// What was said last.
    pub(super) why: String,
}

impl Look {
    /// The present time by the database's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.at.plus(self.taken.elapsed())
    }

    /// Events that are not finished.
    pub(super) fn unfinished(&self) -> u64 {
        let Stats { new, retry, parked, blocked, .. } = self.stats;
        new + retry + parked + blocked
    }

    #[cfg(test)]
    pub(super) fn made_up(at: Timestamp) -> Self {
        Self { at, taken: Instant::now(), stats: Stats::default(), routes: Vec::new(), nodes: Vec::new(), dead: Vec::new() }
    }
}

impl Seen {
    /// The present time: the database's where it is known.
    pub(super) fn now(&self) -> Timestamp {
        self.look.as_ref().map_or_else(|| system_clock().now(), |look| look.now())
    }
}

/// Takes looks and keeps the last.
pub(super) struct Looks {
    store: Arc<dyn Store>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    seen: Seen,
    next: Option<Instant>,
    /// How long the last look took.
    took: Duration,
    /// One that has not come back yet. It is never broken off: a statement would be left in the middle.
    running: Option<JoinHandle<Result<Look, StoreError>>>,
}

impl Looks {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, kept: Mutex::default() }
    }

    /// What is known now, after a new look where the last one is too old.
    pub(super) async fn seen(&self) -> Seen {
        let mut kept = self.kept.lock().await;
        if kept.next.is_some_and(|next| next > Instant::now()) {
            return kept.seen.clone();
        }
        let started = Instant::now();
        let mut running = kept.running.take().unwrap_or_else(|| tokio::spawn(look(self.store.clone())));
        let why = match tokio::time::timeout(PATIENCE, &mut running).await {
            Ok(Ok(Ok(look))) => {
                kept.seen = Seen { look: Some(Arc::new(look)), gone: None };
                kept.took = started.elapsed();
                kept.next = Some(Instant::now() + rest(kept.took));
                return kept.seen.clone();
            }
            Ok(Ok(Err(error))) => crate::chain(&error).to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                kept.running = Some(running);
                format!("no answer for {} s", PATIENCE.as_secs())
            }
        };
        let since = kept.seen.gone.take().map_or_else(|| system_clock().now(), |gone| gone.since);
        kept.seen.gone = Some(Gone { since, why });
        kept.next = Some(Instant::now() + YOUNGEST);
        kept.seen.clone()
    }

    /// What is known without a look of its own, or by one when the last is a minute old and was cheap: for whoever asks without
    /// somebody waiting for the answer.
    pub(super) async fn seen_lately(&self) -> Seen {
        {
            let kept = self.kept.lock().await;
            let is_young = kept.seen.look.as_ref().is_some_and(|look| look.taken.elapsed() < OLDEST);
            if is_young || kept.took > DEAR {
                return kept.seen.clone();
            }
        }
        self.seen().await
    }

    /// Looks anew for the next page: somebody has just changed something.
    pub(super) async fn forget(&self) {
        self.kept.lock().await.next = None;
    }
}

async fn look(store: Arc<dyn Store>) -> Result<Look, StoreError> {
    let at = store.now().await?;
    let taken = Instant::now();
    let stats = store.stats().await?;
    let routes = store.count_routes().await?;
    let nodes = store.nodes().await?;
    let newest = Filter { status: Some(Status::Dead), newest_first: true, ..Filter::default() };
    let dead = if stats.dead == 0 { Vec::new() } else { sample(&*store, newest).await? };
    Ok(Look { at, taken, stats, routes, nodes, dead })
}

/// The first [`SAMPLE`] events of a list, without their headers: nobody shows these of so many, and they may be large.
pub(super) async fn sample(store: &dyn Store, mut filter: Filter) -> Result<Vec<Record>, StoreError> {
    let mut sample = Vec::new();
    while sample.len() < SAMPLE as usize {
        let rows = store.list(&filter, AT_ONCE).await?;
        let is_last = rows.len() < AT_ONCE as usize;
        let last = rows.last().map(|last| last.seq);
        *if filter.newest_first { &mut filter.before } else { &mut filter.after } = last;
        sample.extend(rows.into_iter().map(|row| Record { headers: Headers::default(), ..row }));
        if is_last {
            break;
        }
    }
    sample.truncate(SAMPLE as usize);
    Ok(sample)
}
