//! One snapshot for all pages, taken again only when it is old enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use outbox::purge::PurgeConfig;
use outbox_event::time::system_clock;
use outbox_store::{Store, StoreError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::snapshot::{Known, Outage, SHOW_AGE_AFTER, Snapshot, take};
use crate::cached::{OLDEST, YOUNGEST, rest};

/// How long a page waits for the database before it shows what it knew.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a page waits for a new snapshot where the last one is younger than [`SHOW_AGE_AFTER`]. An open page hears of the new one.
const PROMPT: Duration = Duration::from_millis(25);
/// How long it waits where the last one is older, but less than [`OLDEST`] old: longer than most databases need.
const LONGER_WAIT: Duration = Duration::from_millis(500);
/// How long other visitors are shown the old snapshot after one has waited for the new one, unless that comes.
const WAIT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A snapshot that takes longer is taken for visitors only, not for the charts.
const DEAR: Duration = Duration::from_secs(1);

/// Takes snapshots and keeps the last.
pub(crate) struct Snapshots {
    take: Box<Take>,
    kept: Mutex<Kept>,
}

type Take = dyn Fn() -> BoxFuture<'static, Result<Snapshot, StoreError>> + Send + Sync;

#[derive(Default)]
struct Kept {
    known: Known,
    next: Option<Instant>,
    /// How long the last snapshot took.
    took: Duration,
    /// Whether a visitor made a change since the last snapshot.
    is_outdated: bool,
    /// A snapshot that is being taken.
    running: Option<Running>,
}

/// A snapshot that is being taken. It is never cancelled: that would leave a statement half read on its connection.
struct Running {
    since: Instant,
    /// It may have begun before a change, so another one follows.
    is_outdated: bool,
    /// The snapshot, and how long it took.
    task: JoinHandle<Result<(Snapshot, Duration), StoreError>>,
}

impl Running {
    fn begin(snapshot: BoxFuture<'static, Result<Snapshot, StoreError>>) -> Self {
        let since = Instant::now();
        Self { since, is_outdated: false, task: tokio::spawn(async move { Ok((snapshot.await?, since.elapsed())) }) }
    }

    /// Whether it is too old to say anything of the present.
    fn is_stale(&self) -> bool {
        self.task.is_finished() && self.since.elapsed() >= OLDEST
    }
}

impl Kept {
    /// The database does not answer those who asked at this instant.
    fn note_outage(&mut self, asked: Instant, why: String, is_silence: bool) {
        let since = match (&self.known.snapshot, self.known.outage.take()) {
            (Some(snapshot), _) => snapshot.at,
            (None, Some(outage)) => outage.since,
            (None, None) => system_clock().now().minus(asked.elapsed()),
        };
        self.known.outage = Some(Outage { since, why, is_silence });
        self.next = Some(Instant::now() + YOUNGEST);
    }

    /// How long a visitor waits for a new snapshot before the last one is shown; `None` when that will not do.
    fn patience(&self) -> Option<Duration> {
        // A slow snapshot is older than `OLDEST` by the time the next one is due.
        let oldest = OLDEST + self.took + PATIENCE;
        let age = self.known.snapshot.as_ref()?.taken.elapsed();
        let will_do = age < oldest && !self.is_outdated && self.known.outage.is_none();
        will_do.then_some(if age < SHOW_AGE_AFTER { PROMPT } else { LONGER_WAIT })
    }

    /// Whether a snapshot that no visitor waited for is complete.
    fn has_come(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.task.is_finished())
    }
}

impl Snapshots {
    /// `purge` are the settings of the host's own purge, `lease` is the host's own.
    pub(crate) fn new(store: Arc<dyn Store>, purge: PurgeConfig, lease: Duration) -> Self {
        Self { take: Box::new(move || Box::pin(take(store.clone(), purge.clone(), lease))), kept: Mutex::default() }
    }

    /// The last snapshot, after a new one if it is too old.
    pub(crate) async fn latest(&self) -> Known {
        let mut kept = self.kept.lock().await;
        if kept.next.is_some_and(|next| next > Instant::now()) && !kept.has_come() {
            return kept.known.clone();
        }
        let asked = Instant::now();
        let (why, is_silence) = loop {
            let running = kept.running.take().filter(|running| !running.is_stale());
            let mut running = running.unwrap_or_else(|| Running::begin((self.take)()));
            let left = PATIENCE.saturating_sub(running.since.elapsed().max(asked.elapsed()));
            let prompt = kept.patience().filter(|prompt| *prompt < left);
            match tokio::time::timeout(prompt.unwrap_or(left), &mut running.task).await {
                Ok(Ok(Ok((snapshot, took)))) => {
                    kept.next = Some(snapshot.taken + rest(took));
                    kept.took = took;
                    kept.known = Known { snapshot: Some(Arc::new(snapshot)), outage: None };
                    if running.is_outdated {
                        continue;
                    }
                    kept.is_outdated = false;
                    return kept.known.clone();
                }
                Ok(Ok(Err(error))) => break (outbox_event::chain::chain(&error).to_string(), error.is_silence()),
                Ok(Err(error)) => break (error.to_string(), false),
                Err(_) => {
                    kept.running = Some(running);
                    if prompt.is_some() {
                        // The next visitor does not wait for the same snapshot again.
                        kept.next = Some(Instant::now() + WAIT_AGAIN_AFTER);
                        return kept.known.clone();
                    }
                    break (format!("no answer for {} s", PATIENCE.as_secs()), false);
                }
            }
        };
        kept.note_outage(asked, why, is_silence);
        kept.known.clone()
    }

    /// The last snapshot, after another read has failed.
    pub(crate) async fn after(&self, error: &StoreError) -> Known {
        let mut kept = self.kept.lock().await;
        if error.is_silence() {
            kept.note_outage(Instant::now(), outbox_event::chain::chain(error).to_string(), true);
        }
        kept.known.clone()
    }

    /// The last snapshot, for the charts, which no visitor waits for. A new one only if the last is older than [`OLDEST`] and was
    /// quick.
    pub(crate) async fn recent(&self) -> Known {
        {
            let kept = self.kept.lock().await;
            let is_young = kept.known.snapshot.as_ref().is_some_and(|snapshot| snapshot.taken.elapsed() < OLDEST);
            if is_young || kept.took > DEAR {
                return kept.known.clone();
            }
        }
        self.latest().await
    }

    /// Makes the next page take a new snapshot, because a visitor made a change.
    pub(crate) async fn forget(&self) {
        let mut kept = self.kept.lock().await;
        kept.next = None;
        kept.is_outdated = true;
        // One at a time, so that many changes do not count the table many times at once.
        if let Some(running) = &mut kept.running {
            running.is_outdated = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use outbox_store::Stats;
    use tokio::sync::mpsc;

    use super::*;

    /// Snapshots, each of which is finished when the test says how many new events there are.
    fn told() -> (Snapshots, mpsc::UnboundedSender<u64>) {
        let (tell, told) = mpsc::unbounded_channel();
        let told = Arc::new(Mutex::new(told));
        let take = move || -> BoxFuture<'static, Result<Snapshot, StoreError>> {
            let told = told.clone();
            Box::pin(async move {
                let new = told.lock().await.recv().await.expect("the test tells");
                Ok(Snapshot { stats: changed!(Stats { new, ..Stats::default() }), ..Snapshot::made_up(system_clock().now()) })
            })
        };
        (Snapshots { take: Box::new(take), kept: Mutex::default() }, tell)
    }

    fn new_events(known: &Known) -> Option<u64> {
        known.snapshot.as_ref().map(|snapshot| snapshot.stats.new)
    }

    /// As if so much time had passed that a new snapshot is due.
    async fn later(snapshots: &Snapshots) {
        snapshots.kept.lock().await.next = None;
    }

    /// Fails where something that must happen does not.
    async fn in_time<T>(task: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(30), task).await.expect("the look did not come back within 30 s")
    }

    #[tokio::test]
    async fn a_page_does_not_wait_for_a_new_look_where_the_last_one_will_do() {
        let (snapshots, tell) = told();
        tell.send(1).unwrap();
        assert_eq!(new_events(&snapshots.latest().await), Some(1));

        later(&snapshots).await;
        let known = snapshots.latest().await;
        assert_eq!((new_events(&known), known.outage.is_some()), (Some(1), false), "the new snapshot is not finished");

        tell.send(2).unwrap();
        in_time(async {
            while new_events(&snapshots.latest().await) != Some(2) {
                later(&snapshots).await;
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// As if the last snapshot had been taken so long ago.
    async fn aged(snapshots: &Snapshots, age: Duration) {
        let mut kept = snapshots.kept.lock().await;
        let last = kept.known.snapshot.as_ref().expect("there is one");
        let taken = Instant::now().checked_sub(age).expect("the machine runs for so long");
        kept.known.snapshot = Some(Arc::new(Snapshot { taken, ..Snapshot::made_up(last.at) }));
    }

    #[tokio::test]
    async fn the_older_the_last_snapshot_the_longer_a_page_waits_for_a_new_one() {
        let (snapshots, tell) = told();
        assert_eq!(snapshots.kept.lock().await.patience(), None, "there is nothing to show");
        tell.send(1).unwrap();
        snapshots.latest().await;
        assert_eq!(snapshots.kept.lock().await.patience(), Some(PROMPT));

        aged(&snapshots, SHOW_AGE_AFTER).await;
        assert_eq!(snapshots.kept.lock().await.patience(), Some(LONGER_WAIT), "longer than most databases need");
        aged(&snapshots, OLDEST * 2).await;
        assert_eq!(snapshots.kept.lock().await.patience(), None, "too old to be shown");
    }

    #[tokio::test]
    async fn a_snapshot_that_came_after_a_visitor_had_gone_is_shown_to_the_next_one_at_once() {
        let (snapshots, tell) = told();
        tell.send(1).unwrap();
        snapshots.latest().await;
        later(&snapshots).await;
        snapshots.latest().await; // leaves a snapshot on its way
        tell.send(2).unwrap();

        in_time(async {
            while new_events(&snapshots.latest().await) != Some(2) {
                assert!(snapshots.kept.lock().await.running.is_some(), "it is on its way, and no visitor began another");
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn what_was_changed_is_seen_on_the_next_page() {
        let (snapshots, tell) = told();
        tell.send(1).unwrap();
        snapshots.latest().await;
        later(&snapshots).await;
        snapshots.latest().await; // leaves a snapshot on its way

        snapshots.forget().await;
        tell.send(2).unwrap(); // for the snapshot that began before the change
        tell.send(3).unwrap();

        assert_eq!(new_events(&snapshots.latest().await), Some(3));
    }

    #[tokio::test]
    async fn a_database_that_is_silent_for_too_long_is_gone_and_what_was_known_is_kept() {
        let (snapshots, tell) = told();
        tell.send(1).unwrap();
        snapshots.latest().await;
        later(&snapshots).await;
        snapshots.latest().await;

        snapshots.kept.lock().await.running.as_mut().expect("one is on its way").since -= PATIENCE;
        later(&snapshots).await;
        let known = snapshots.latest().await;
        assert_eq!((new_events(&known), known.outage.is_some()), (Some(1), true));

        tell.send(2).unwrap();
        later(&snapshots).await;
        let known = snapshots.latest().await;
        assert_eq!((new_events(&known), known.outage.is_some()), (Some(2), false));
    }

    #[tokio::test]
    async fn the_database_has_been_silent_since_its_last_answer_and_whoever_asks_next_is_told_of_a_failed_read() {
        let (snapshots, tell) = told();
        tell.send(1).unwrap();
        let answered = snapshots.latest().await.snapshot.expect("it answered");
        let error = |source| StoreError::Failed { action: "list events", source };

        let slow = StoreError::TimedOut { action: "list events", source: sqlx::Error::RowNotFound };
        assert!(snapshots.after(&slow).await.outage.is_none(), "it answered: too late");
        let known = snapshots.after(&error(sqlx::Error::PoolTimedOut)).await;

        let outage = known.outage.expect("the database does not answer");
        assert_eq!((outage.since, outage.is_silence), (answered.at, true));
        assert!(snapshots.latest().await.outage.is_some(), "the next page knows of it");
    }

    #[tokio::test]
    async fn a_look_that_came_back_long_ago_is_not_shown() {
        let (snapshots, tell) = told();
        tell.send(1).unwrap();
        snapshots.latest().await;
        later(&snapshots).await;
        snapshots.latest().await;
        tell.send(2).unwrap();
        {
            let mut kept = snapshots.kept.lock().await;
            let running = kept.running.as_mut().expect("one is on its way");
            in_time(async {
                while !running.task.is_finished() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            running.since -= OLDEST;
            kept.next = None;
            kept.known.snapshot = None; // as old
        }
        tell.send(3).unwrap();

        assert_eq!(new_events(&snapshots.latest().await), Some(3));
    }
}
