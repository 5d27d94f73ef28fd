//! What the pages know of the table: one look for all of them, taken again only when it is old enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::event::{Headers, Status};
use crate::http::cached::{OLDEST, YOUNGEST, rest};
use crate::store::{Filter, NodeRecord, Record, RouteRecord, Stats, Store, StoreError};
use crate::time::{Timestamp, system_clock};

/// How long a page waits for the database before it shows what it knew.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits for a new look where the last one is less than [`OLDEST`] old. A page that is open is told of the new one.
const PROMPT: Duration = Duration::from_millis(25);
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
    take: Box<Take>,
    kept: Mutex<Kept>,
}

type Take = dyn Fn() -> BoxFuture<'static, Result<Look, StoreError>> + Send + Sync;

#[derive(Default)]
struct Kept {
    seen: Seen,
    next: Option<Instant>,
    /// How long the last look took.
    took: Duration,
    /// Somebody has changed something since the last look.
    is_outdated: bool,
    /// One that has not come back yet.
    running: Option<Running>,
}

/// A look on its way. It is never broken off: a statement would be left in the middle.
struct Running {
    since: Instant,
    /// It may have begun before a change, so that another one follows.
    is_outdated: bool,
    /// The look, and how long it took.
    task: JoinHandle<Result<(Look, Duration), StoreError>>,
}

impl Running {
    fn begin(look: BoxFuture<'static, Result<Look, StoreError>>) -> Self {
        let since = Instant::now();
        Self { since, is_outdated: false, task: tokio::spawn(async move { Ok((look.await?, since.elapsed())) }) }
    }

    /// Whether it came back so long ago that it tells nothing of the present.
    fn is_stale(&self) -> bool {
        self.task.is_finished() && self.since.elapsed() >= OLDEST
    }
}

impl Kept {
    /// Whether the last look will do while a new one is on its way.
    fn will_do(&self) -> bool {
        // Where a look takes long, the last one is older than that when the next one is due.
        let oldest = OLDEST + self.took + PATIENCE;
        let is_young = self.seen.look.as_ref().is_some_and(|look| look.taken.elapsed() < oldest);
        is_young && !self.is_outdated && self.seen.gone.is_none()
    }
}

impl Looks {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { take: Box::new(move || Box::pin(look(store.clone()))), kept: Mutex::default() }
    }

    /// What is known now, after a new look where the last one is too old.
    pub(super) async fn seen(&self) -> Seen {
        let mut kept = self.kept.lock().await;
        if kept.next.is_some_and(|next| next > Instant::now()) {
            return kept.seen.clone();
        }
        let asked = Instant::now();
        let why = loop {
            let running = kept.running.take().filter(|running| !running.is_stale());
            let mut running = running.unwrap_or_else(|| Running::begin((self.take)()));
            let left = PATIENCE.saturating_sub(running.since.elapsed().max(asked.elapsed()));
            let is_prompt = kept.will_do() && left > PROMPT;
            match tokio::time::timeout(if is_prompt { PROMPT } else { left }, &mut running.task).await {
                Ok(Ok(Ok((look, took)))) => {
                    kept.next = Some(look.taken + rest(took));
                    kept.took = took;
                    kept.seen = Seen { look: Some(Arc::new(look)), gone: None };
                    if running.is_outdated {
                        continue;
                    }
                    kept.is_outdated = false;
                    return kept.seen.clone();
                }
                Ok(Ok(Err(error))) => break crate::chain(&error).to_string(),
                Ok(Err(error)) => break error.to_string(),
                Err(_) => {
                    kept.running = Some(running);
                    if is_prompt {
                        // Whoever asks next does not wait for the same look again.
                        kept.next = Some(Instant::now() + PROMPT * 4);
                        return kept.seen.clone();
                    }
                    break format!("no answer for {} s", PATIENCE.as_secs());
                }
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
        let mut kept = self.kept.lock().await;
        kept.next = None;
        kept.is_outdated = true;
        // One at a time, so that whoever changes much does not count the table many times at once.
        if let Some(running) = &mut kept.running {
            running.is_outdated = true;
        }
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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Looks, each of which comes back when it is told how many new events there are.
    fn told() -> (Looks, mpsc::UnboundedSender<u64>) {
        let (tell, told) = mpsc::unbounded_channel();
        let told = Arc::new(Mutex::new(told));
        let take = move || -> BoxFuture<'static, Result<Look, StoreError>> {
            let told = told.clone();
            Box::pin(async move {
                let new = told.lock().await.recv().await.expect("the test tells");
                Ok(Look { stats: Stats { new, ..Stats::default() }, ..Look::made_up(system_clock().now()) })
            })
        };
        (Looks { take: Box::new(take), kept: Mutex::default() }, tell)
    }

    fn new_events(seen: &Seen) -> Option<u64> {
        seen.look.as_ref().map(|look| look.stats.new)
    }

    /// As if so much time had passed that a new look is due.
    async fn later(looks: &Looks) {
        looks.kept.lock().await.next = None;
    }

    /// Fails where something that must happen does not.
    async fn in_time<T>(task: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(30), task).await.expect("the look did not come back within 30 s")
    }

    #[tokio::test]
    async fn a_page_does_not_wait_for_a_new_look_where_the_last_one_will_do() {
        let (looks, tell) = told();
        tell.send(1).unwrap();
        assert_eq!(new_events(&looks.seen().await), Some(1));

        later(&looks).await;
        let seen = looks.seen().await;
        assert_eq!((new_events(&seen), seen.gone.is_some()), (Some(1), false), "the new look has not come back");

        tell.send(2).unwrap();
        in_time(async {
            while new_events(&looks.seen().await) != Some(2) {
                later(&looks).await;
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn what_was_changed_is_seen_on_the_next_page() {
        let (looks, tell) = told();
        tell.send(1).unwrap();
        looks.seen().await;
        later(&looks).await;
        looks.seen().await; // leaves a look on its way

        looks.forget().await;
        tell.send(2).unwrap(); // for the look that began before the change
        tell.send(3).unwrap();

        assert_eq!(new_events(&looks.seen().await), Some(3));
    }

    #[tokio::test]
    async fn a_database_that_is_silent_for_too_long_is_gone_and_what_was_known_is_kept() {
        let (looks, tell) = told();
        tell.send(1).unwrap();
        looks.seen().await;
        later(&looks).await;
        looks.seen().await;

        looks.kept.lock().await.running.as_mut().expect("one is on its way").since -= PATIENCE;
        later(&looks).await;
        let seen = looks.seen().await;
        assert_eq!((new_events(&seen), seen.gone.is_some()), (Some(1), true));

        tell.send(2).unwrap();
        later(&looks).await;
        let seen = looks.seen().await;
        assert_eq!((new_events(&seen), seen.gone.is_some()), (Some(2), false));
    }

    #[tokio::test]
    async fn a_look_that_came_back_long_ago_is_not_shown() {
        let (looks, tell) = told();
        tell.send(1).unwrap();
        looks.seen().await;
        later(&looks).await;
        looks.seen().await;
        tell.send(2).unwrap();
        {
            let mut kept = looks.kept.lock().await;
            let running = kept.running.as_mut().expect("one is on its way");
            in_time(async {
                while !running.task.is_finished() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            running.since -= OLDEST;
            kept.next = None;
            kept.seen.look = None; // as old
        }
        tell.send(3).unwrap();

        assert_eq!(new_events(&looks.seen().await), Some(3));
    }
}
