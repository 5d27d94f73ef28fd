//! The content of the table at one moment, and whether the database still answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::purge::{Overdue, PurgeConfig};
use outbox::why::{Change, MOST_WAITING, RecentChanges};
use outbox_event::time::{Timestamp, system_clock};
use outbox_event::{Headers, Status};
use outbox_store::{Filter, LaggingSequence, NodeRecord, Record, RouteRecord, Stats, Store, StoreError, WaitReason};

use crate::history::Counted;

/// A snapshot this old is shown with its age: the lists of a page that is loaded are as they are now.
pub(crate) const SHOW_AGE_AFTER: Duration = Duration::from_secs(5);
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
    /// Why events wait although their time has come, of the [`MOST_WAITING`] that are due first.
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

    /// The latest count of the unfinished events, for the charts; `None` while the database does not answer.
    pub(crate) fn latest_count(&self) -> Option<Counted> {
        let snapshot = self.snapshot.as_ref().filter(|_| self.outage.is_none())?;
        let oldest = snapshot.stats.oldest_pending_seconds.longest().map(|(_, age)| age).unwrap_or_default();
        Some(Counted { waiting: snapshot.unfinished(), oldest })
    }
}

/// Reads a snapshot.
pub(super) async fn take(store: Arc<dyn Store>, purge: PurgeConfig, lease: Duration) -> Result<Snapshot, StoreError> {
    let at = store.now().await?;
    let taken = Instant::now();
    let stats = store.stats().await?;
    let routes = store.count_routes().await?;
    let nodes = outbox::node::hosts(&*store).await?;
    let newest = Filter { status: Some(Status::Dead), newest_first: true, ..Filter::default() };
    let dead = if stats.dead == 0 { Vec::new() } else { sample(&*store, newest).await? };
    let waits = store.wait_reasons(MOST_WAITING).await?;
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
    use super::*;

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
}
