//! What the pages know of the table: one snapshot for all of them, taken again only when it is old enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use outbox::purge::{Overdue, PurgeConfig};
use outbox::why::{Change, RecentChanges};
use outbox_event::time::{Timestamp, system_clock};
use outbox_event::{Headers, Status};
use outbox_store::{Filter, LaggingSequence, NodeRecord, Record, RouteRecord, Stats, Store, StoreError, WaitReason};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::cached::{OLDEST, YOUNGEST, rest};

/// How long a page waits for the database before it shows what it knew.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a page waits for a new snapshot where the last one is younger than [`SHOW_AGE_AFTER`]. An open page hears of the new one.
const PROMPT: Duration = Duration::from_millis(25);
/// How long it waits where the last one is older, but less than [`OLDEST`] old: longer than most databases need.
const LONGER_WAIT: Duration = Duration::from_millis(500);
/// A snapshot this old is shown with its age: the lists of a page that is loaded are as they are now.
pub(crate) const SHOW_AGE_AFTER: Duration = Duration::from_secs(5);
/// How long other visitors are shown the old snapshot after one has waited for the new one, unless that comes.
const WAIT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A snapshot that takes longer is taken for visitors only, not for the charts.
const DEAR: Duration = Duration::from_secs(1);
/// How many dead events are grouped by their errors: the newest ones.
pub(crate) const SAMPLE: u32 = 500;
/// How many dead events are read at once.
const AT_ONCE: u32 = 50;

/// What the table held at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The moment, by the database's clock.
    pub(crate) at: Timestamp,
    pub(crate) taken: Instant,
    /// The lease of this host.
    pub(crate) lease: Duration,
    pub(crate) stats: Stats,
    /// Every route with its counts.
    pub(crate) routes: Vec<RouteRecord>,
    pub(crate) nodes: Vec<NodeRecord>,
    /// The newest dead events, at most [`SAMPLE`].
    pub(crate) dead: Vec<Record>,
    /// Why events wait although their time has come, of the [`SAMPLE`] that are due first.
    pub(crate) waits: Vec<WaitReason>,
    /// Finished events that purges should have deleted.
    pub(crate) overdue: Vec<Overdue>,
    /// The sequences that are behind their tables.
    pub(crate) lagging_sequences: Vec<LaggingSequence>,
    /// The last changes; `None` if the audit log could not be read.
    pub(crate) recent: Option<RecentChanges>,
}

/// What is known now: the last snapshot, and whether the database still answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) outage: Option<Outage>,
}

/// The database does not answer.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    /// When it last answered; without a snapshot, when it was first asked.
    pub(crate) since: Timestamp,
    /// What the database, or its driver, said last.
    pub(crate) why: String,
    /// Whether nothing can be asked now. Otherwise the snapshot may just take long.
    pub(crate) is_silence: bool,
}

impl Snapshot {
    /// The present time by the database's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.at.plus(self.taken.elapsed())
    }

    /// The moment, where it is longer ago than a visitor would think.
    pub(crate) fn time_if_old(&self) -> Option<Timestamp> {
        (self.taken.elapsed() >= SHOW_AGE_AFTER).then_some(self.at)
    }

    /// The last changes, the latest first.
    pub(crate) fn changes(&self) -> &[Change] {
        self.recent.as_ref().map(|recent| recent.changes.as_slice()).unwrap_or_default()
    }

    /// Whether any host is alive.
    pub(crate) fn is_anybody_alive(&self) -> bool {
        self.nodes.iter().any(|node| node.alive)
    }

    /// Events that are not finished.
    pub(crate) fn unfinished(&self) -> u64 {
        let Stats { new, retry, parked, blocked, .. } = self.stats;
        new + retry + parked + blocked
    }

    #[cfg(test)]
    pub(crate) fn made_up(at: Timestamp) -> Self {
        Self {
            at,
            taken: Instant::now(),
            lease: Duration::ZERO,
            stats: Stats::default(),
            routes: Vec::new(),
            nodes: Vec::new(),
            dead: Vec::new(),
            waits: Vec::new(),
            overdue: Vec::new(),
            lagging_sequences: Vec::new(),
            recent: None,
        }
    }
}

impl Known {
    /// The present time: the database's where it is known.
    pub(crate) fn now(&self) -> Timestamp {
        self.snapshot.as_ref().map_or_else(|| system_clock().now(), |snapshot| snapshot.now())
    }
}

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
    /// Somebody has changed something since the last snapshot.
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

    /// Whether a snapshot that somebody did not wait for has come.
    fn has_come(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.task.is_finished())
    }
}

impl Snapshots {
    /// `purge` are the settings of the host's own purge, `lease` is the host's own.
    pub(crate) fn new(store: Arc<dyn Store>, purge: PurgeConfig, lease: Duration) -> Self {
        Self { take: Box::new(move || Box::pin(take(store.clone(), purge.clone(), lease))), kept: Mutex::default() }
    }

    /// What is known now, after a new snapshot where the last one is too old.
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

    /// What is known after something else that was asked has failed.
    pub(crate) async fn after(&self, error: &StoreError) -> Known {
        let mut kept = self.kept.lock().await;
        if error.is_silence() {
            kept.note_outage(Instant::now(), outbox_event::chain::chain(error).to_string(), true);
        }
        kept.known.clone()
    }

    /// The last snapshot; for the charts, which nobody waits for. A new one only if the last is older than [`OLDEST`] and was
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

    /// Somebody has just changed something: the next page gets a new snapshot.
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

async fn take(store: Arc<dyn Store>, purge: PurgeConfig, lease: Duration) -> Result<Snapshot, StoreError> {
    let at = store.now().await?;
    let taken = Instant::now();
    let stats = store.stats().await?;
    let routes = store.count_routes().await?;
    let nodes = outbox::node::hosts(&*store).await?;
    let newest = Filter { status: Some(Status::Dead), newest_first: true, ..Filter::default() };
    let dead = if stats.dead == 0 { Vec::new() } else { sample(&*store, newest).await? };
    let waits = store.wait_reasons(SAMPLE).await?;
    let overdue = or_unknown(Overdue::read(&*store, &purge, at).await)?;
    // At the same time: both read the audit log, and may wait for its lock until the timeout.
    let (lagging_sequences, recent) = tokio::join!(store.lagging_sequences(), RecentChanges::read(&*store, at));
    let (lagging_sequences, recent) = (or_unknown(lagging_sequences)?, or_unknown(recent.map(Some))?);
    Ok(Snapshot { at, taken, lease, stats, routes, nodes, dead, waits, overdue, lagging_sequences, recent })
}

/// The result of a read that the other findings do not need. Empty if the database answers with an error, for example because the table is
/// locked or this user lacks a right.
///
/// # Errors
/// The database did not answer.
fn or_unknown<T: Default>(read: Result<T, StoreError>) -> Result<T, StoreError> {
    read.or_else(|error| if error.is_silence() { Err(error) } else { Ok(T::default()) })
}

/// The first [`SAMPLE`] events of a list, without their headers: no list shows headers, and they may be large.
pub(crate) async fn sample(store: &dyn Store, mut filter: Filter) -> Result<Vec<Record>, StoreError> {
    let mut sample = Vec::new();
    while sample.len() < SAMPLE as usize {
        let mut rows = store.list(&filter, AT_ONCE).await?;
        let is_last = rows.len() < AT_ONCE as usize;
        let last = rows.last().map(|last| last.seq);
        *if filter.newest_first { &mut filter.before } else { &mut filter.after } = last;
        rows.iter_mut().for_each(|row| row.headers = Headers::default());
        sample.append(&mut rows);
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

        let outage = known.outage.expect("nobody answers");
        assert_eq!((outage.since, outage.is_silence), (answered.at, true));
        assert!(snapshots.latest().await.outage.is_some(), "the next page knows of it");
    }

    #[test]
    fn a_read_that_fails_is_unknown_unless_the_database_did_not_answer() {
        let failed =
            |source| -> Result<Vec<u64>, StoreError> { Err(StoreError::Failed { action: "look at the sequences", source }) };
        let forgiven = [
            Err(StoreError::TimedOut { action: "list changes", source: sqlx::Error::RowNotFound }),
            failed(sqlx::Error::RowNotFound),
        ];
        for read in forgiven {
            assert!(or_unknown(read).expect("the database answered").is_empty());
        }
        assert_eq!(or_unknown(Ok(vec![7])).expect("it was read"), vec![7]);
        or_unknown(failed(sqlx::Error::PoolTimedOut)).expect_err("the database did not answer");
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
