use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::walk::rest;
use super::*;

const TICK: Duration = Duration::from_millis(30);
/// Any rows: the stores of these tests do not look.
const TARGET: PurgeTarget = PurgeTarget::Undelivered { older_than: Duration::ZERO };

fn walk(limits: PurgeLimits, batch_size: u32) -> (Walk, watch::Sender<bool>) {
    let closed = watch::Sender::new(false);
    (Walk::new(limits, batch_size, closed.subscribe()), closed)
}

/// Endless rows, each batch of which takes its time.
#[derive(Default)]
struct Endless {
    /// The limit of each call, its begin and its end.
    calls: Mutex<Vec<(u32, Instant, Instant)>>,
    /// Whether the first batch fails because of a lock.
    is_locked: bool,
    /// Whether there are no rows after all.
    is_empty: bool,
    /// Closed by the first batch.
    closes: Option<watch::Sender<bool>>,
}

impl Endless {
    fn calls(&self) -> Vec<(u32, Instant, Instant)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Batches for Endless {
    async fn delete(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let began = Instant::now();
        if let Some(closes) = &self.closes {
            closes.send_replace(true);
        }
        tokio::time::sleep(TICK).await;
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push((request.limit, began, Instant::now()));
        if self.is_locked && calls.len() == 1 {
            return Err(StoreError::Locked { action: "purge", source: sqlx::Error::PoolTimedOut });
        }
        let count = if self.is_empty { 0 } else { request.limit };
        Ok(PurgeBatch { count: count.into(), ..PurgeBatch::default() })
    }

    async fn note(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn next(&self, _: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        Ok(None)
    }
}

#[tokio::test]
async fn a_purge_rests_at_least_as_long_as_its_batch_took() {
    let (mut walk, _open) = walk(PurgeLimits { rows: Some(80), ..PurgeLimits::default() }, 40);
    let rows = Endless::default();

    walk.run(TARGET, &rows, |_| {}).await.expect("runs");

    let [(_, began, ended), (_, again, _)] = rows.calls()[..] else { panic!("two batches are eighty rows") };
    assert!(again - ended >= ended - began);
}

#[test]
fn no_rest_is_longer_than_a_second() {
    assert_eq!(rest(TICK), TICK);
    assert_eq!(rest(Duration::from_secs(60)), Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_in_the_way_has_time_to_pass_before_half_a_batch_is_tried() {
    let (mut walk, _open) = walk(PurgeLimits::default(), 40);
    let rows = Endless { is_locked: true, is_empty: true, ..Endless::default() };

    walk.run(TARGET, &rows, |_| {}).await.expect("runs");

    let [(40, first, _), (20, second, _)] = rows.calls()[..] else { panic!("a batch and its half: {:?}", rows.calls()) };
    assert!(second - first >= TICK * 2);
}

#[tokio::test]
async fn the_time_limit_counts_from_the_beginning_of_the_whole_purge() {
    let (mut walk, _open) = walk(PurgeLimits { time: Some(TICK), ..PurgeLimits::default() }, 40);
    let (first, second) = (Endless::default(), Endless::default());

    walk.run(TARGET, &first, |_| {}).await.expect("runs");
    walk.run(TARGET, &second, |_| {}).await.expect("runs");

    assert!(first.calls().len() <= 1, "the first batch uses the time up");
    assert_eq!(second.calls().len(), 0, "nothing is left of it for what comes after");
}

#[tokio::test]
async fn no_batch_begins_after_closing() {
    let (mut walk, open) = walk(PurgeLimits::default(), 40);
    let rows = Endless { closes: Some(open), ..Endless::default() };

    let ended = walk.run(TARGET, &rows, |_| {}).await;

    assert!(matches!(ended, Err(PurgeError::Closed)));
    assert_eq!((rows.calls().len(), walk.purged.count), (1, 40), "what was deleted is known");
}

/// Whether the database deletes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deletable,
    /// Its DELETE is an error.
    Refused,
    /// Its DELETE has no effect.
    Suppressed,
    /// The user may not delete it.
    Forbidden,
}

/// Rows by `seq`; always three of them finished at the same time.
struct Rows {
    rows: Mutex<BTreeMap<u64, Kind>>,
    statements: Mutex<usize>,
}

impl Rows {
    fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { rows: Mutex::new((1..).zip(kinds).collect()), statements: Mutex::default() }
    }

    fn left(&self) -> Vec<u64> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    fn statements(&self) -> usize {
        *self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn choose(&self, request: &PurgeRequest) -> Vec<(PurgeRow, Kind)> {
        *self.statements.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let row = |seq: u64| PurgeRow { seq, event_id: None, at: Timestamp::from_micros(i64::try_from(seq / 3).unwrap()) };
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.iter().map(|(seq, kind)| (row(*seq), *kind));
        rows.filter(|(row, _)| !request.skip.contains(&row.seq) && Some(row.at) >= request.from)
            .take(request.limit as usize)
            .collect()
    }
}

#[async_trait]
impl Batches for Rows {
    async fn delete(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let chosen = self.choose(request);
        let source = || sqlx::Error::Protocol("the order is archived".to_owned());
        if chosen.iter().any(|(_, kind)| *kind == Kind::Forbidden) {
            return Err(StoreError::Forbidden { action: "purge", source: source() });
        }
        if chosen.iter().any(|(_, kind)| *kind == Kind::Refused) {
            return Err(StoreError::Failed { action: "purge", source: source() });
        }
        let (deleted, remaining): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|(_, kind)| *kind == Kind::Deletable);
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|seq, _| deleted.iter().all(|(row, _)| row.seq != *seq));
        let times: Vec<Timestamp> = deleted.iter().map(|(row, _)| row.at).collect();
        Ok(PurgeBatch { remaining: remaining.into_iter().map(|(row, _)| row).collect(), ..PurgeBatch::of(&times) })
    }

    async fn note(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn next(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        Ok(self.choose(request).first().map(|(row, _)| *row))
    }
}

#[tokio::test]
async fn any_undeletable_rows_are_the_only_ones_left_and_are_named() {
    for seed in 0..60 {
        let mut chance = StdRng::seed_from_u64(seed);
        let (rows, batch_size, often) =
            (chance.random_range(0..60), chance.random_range(1..25), chance.random_range(0..=10_u32));
        let kinds: Vec<Kind> = (0..rows)
            .map(|_| match chance.random_range(0..20_u32) {
                number if number < often => Kind::Refused,
                number if number < often * 2 => Kind::Suppressed,
                _ => Kind::Deletable,
            })
            .collect();
        let undeletable: Vec<u64> =
            (1..).zip(&kinds).filter(|(_, kind)| **kind != Kind::Deletable).map(|(seq, _)| seq).collect();
        let (table, (mut walk, _open)) = (Rows::new(kinds.clone()), walk(PurgeLimits::default(), batch_size));

        walk.run(TARGET, &table, |_| {}).await.expect("runs");

        let of = format!("seed {seed}: batches of {batch_size} of {kinds:?}");
        assert_eq!(table.left(), undeletable, "{of}");
        let found = walk.purged.undeletable;
        assert_eq!((walk.purged.count + found.count, found.gave_up), (kinds.len() as u64, false), "{of}");
        let named: BTreeSet<u64> = found.first.iter().map(|row| row.seq).collect();
        assert_eq!(named.len(), undeletable.len().min(RefusedRows::NAMED), "each is named once, {of}");
        assert!(named.iter().all(|seq| undeletable.contains(seq)), "{of}");
        let most = 2 + kinds.len() / batch_size as usize + undeletable.len() * 12;
        assert!(table.statements() <= most, "{} statements, not {most}, {of}", table.statements());
    }
}

#[tokio::test]
async fn a_row_is_named_with_the_error_of_the_database() {
    let table = Rows::new([Kind::Deletable, Kind::Refused, Kind::Suppressed]);
    let (mut walk, _open) = walk(PurgeLimits::default(), 500);

    walk.run(TARGET, &table, |_| {}).await.expect("runs");

    let [refused, suppressed] = &walk.purged.undeletable.first[..] else { panic!("two rows: {:?}", walk.purged) };
    assert_eq!((refused.seq, suppressed.seq), (2, 3));
    assert!(refused.error.contains("the order is archived"), "{}", refused.error);
    assert!(suppressed.error.contains("accepted the DELETE and left the row"), "{}", suppressed.error);
}

#[tokio::test]
async fn a_purge_ends_early_when_more_than_a_thousand_rows_cannot_be_deleted() {
    for kind in [Kind::Refused, Kind::Suppressed] {
        let table = Rows::new(std::iter::repeat_n(kind, 3_000));
        let (mut walk, _open) = walk(PurgeLimits::default(), 500);

        walk.run(TARGET, &table, |_| {}).await.expect("runs");

        let found = walk.purged.undeletable;
        assert!(found.gave_up && found.first.len() == RefusedRows::NAMED);
        // Two for each row: one that fails, one that finds the row.
        assert!(table.statements() < 2_100, "{kind:?}: {} statements", table.statements());
    }
}

#[tokio::test]
async fn a_missing_right_ends_a_purge_that_has_deleted_nothing() {
    let table = Rows::new(std::iter::repeat_n(Kind::Forbidden, 100));
    let (mut walk, _open) = walk(PurgeLimits::default(), 500);

    let ended = walk.run(TARGET, &table, |_| {}).await;

    assert!(matches!(ended, Err(PurgeError::Store(StoreError::Forbidden { .. }))), "{ended:?}");
    assert!(table.statements() < 60, "{} statements", table.statements());
}

#[tokio::test]
async fn an_error_of_the_whole_database_ends_a_purge() {
    struct Gone;

    #[async_trait]
    impl Batches for Gone {
        async fn delete(&self, _: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
            Err(StoreError::Failed { action: "purge", source: sqlx::Error::PoolTimedOut })
        }

        async fn note(&self, _: u64) -> Result<(), StoreError> {
            unreachable!("no row is deleted")
        }

        async fn next(&self, _: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
            unreachable!("no row is looked for")
        }
    }

    let (mut walk, _open) = walk(PurgeLimits::default(), 500);
    let ended = walk.run(TARGET, &Gone, |_| {}).await;

    assert!(matches!(ended, Err(PurgeError::Store(_))), "{ended:?}");
    assert_eq!(walk.purged, Purged::default());
}
