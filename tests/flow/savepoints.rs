//! Savepoints of the caller, chosen by chance: what is committed is delivered once, as it was committed; what was rolled back,
//! all or in part, is never delivered.

use std::collections::{BTreeMap, BTreeSet};

use outbox::writer::OutboxTransaction;
use outbox::{Envelope, EventId, Outbox, WriteError};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use support::{Database, MySql, Postgres, Recorder, Seed, Sqlite, eventually};

use crate::common::{ROUTE, at_rest, nothing_else_is_delivered, outbox};

/// So few ids that writes meet each other.
const IDS: u8 = 3;

/// What one of the transactions does. A step that cannot be done where it stands is left out.
#[derive(Clone, Debug)]
enum Step {
    /// Writes stored events with these ids, and an excluded one beside them or alone.
    Write {
        ids: BTreeSet<u8>,
        excluded: bool,
    },
    Save,
    /// To the savepoint with this number, counted modulo those that there are.
    RollBackTo(usize),
    Release(usize),
    Commit,
    RollBack,
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (proptest::collection::btree_set(0..IDS, 0..3), any::<bool>());
    prop_oneof![
        6 => write.prop_map(|(ids, excluded)| Step::Write { excluded: excluded || ids.is_empty(), ids }),
        3 => Just(Step::Save),
        3 => (0_usize..3).prop_map(Step::RollBackTo),
        1 => (0_usize..3).prop_map(Step::Release),
        2 => Just(Step::Commit),
        1 => Just(Step::RollBack),
        1 => Just(Step::Drop),
    ]
}

/// What the database must hold of one transaction that is open.
#[derive(Default)]
struct Open {
    /// The stored events by their ids, and the excluded ones: each with the number of its write.
    stored: BTreeMap<u8, u32>,
    excluded: Vec<u32>,
    /// The savepoints that there are: their names, and how it was when they were made.
    savepoints: Vec<(String, BTreeMap<u8, u32>, Vec<u32>)>,
    /// The ids of writes that were refused: what came in was deleted, and its locks hold as long as the transaction goes on.
    refused: BTreeSet<u8>,
}

/// One trace on one database.
struct Trace<'a, D: Database> {
    db: &'a D,
    outbox: &'a Outbox<D::Store>,
    /// Makes ids of this trace its own.
    number: u32,
    /// How many transactions may be open at once.
    beside: usize,
    transactions: Vec<Option<(OutboxTransaction<D::Store>, Open)>>,
    committed: BTreeMap<u8, u32>,
    committed_excluded: Vec<u32>,
    writes: u32,
    saves: u32,
}

impl<D: Database> Trace<'_, D> {
    fn id(&self, id: u8) -> EventId {
        format!("{}-stored-{id}", self.number).parse().expect("an id")
    }

    fn excluded_id(&self, write: u32) -> EventId {
        format!("{}-excluded-{write}", self.number).parse().expect("an id")
    }

    async fn run(&mut self, steps: &[(usize, Step)]) {
        for (index, step) in steps {
            self.step(index % 2, step).await;
        }
        for index in 0..2 {
            if self.transactions[index].is_some() {
                self.step(index, &Step::Commit).await;
            }
        }
    }

    async fn step(&mut self, index: usize, step: &Step) {
        if self.transactions[index].is_none() {
            if self.transactions.iter().flatten().count() >= self.beside {
                return;
            }
            let begun = self.outbox.begin().await.expect("begins");
            self.transactions[index] = Some((begun, Open::default()));
        }
        let (mut transaction, mut open) = self.transactions[index].take().expect("it is open");
        match step {
            Step::Write { ids, excluded } => {
                // Who writes an id that somebody else has written in an open transaction waits for the end of that.
                let others = self.transactions.iter().flatten();
                let is_awaited =
                    others.flat_map(|(_, other)| other.stored.keys().chain(&other.refused)).any(|id| ids.contains(id));
                if !is_awaited {
                    self.write(&mut transaction, &mut open, ids, *excluded).await;
                }
            }
            Step::Save => {
                self.saves += 1;
                let name = format!("s{}", self.saves);
                self.db.run_on(&mut transaction, &format!("SAVEPOINT {name}")).await;
                open.savepoints.push((name, open.stored.clone(), open.excluded.clone()));
            }
            Step::RollBackTo(number) if !open.savepoints.is_empty() => {
                let number = number % open.savepoints.len();
                let (name, stored, excluded) = open.savepoints[number].clone();
                self.db.run_on(&mut transaction, &format!("ROLLBACK TO SAVEPOINT {name}")).await;
                (open.stored, open.excluded) = (stored, excluded);
                open.savepoints.truncate(number + 1);
            }
            Step::Release(number) if !open.savepoints.is_empty() => {
                let number = number % open.savepoints.len();
                self.db.run_on(&mut transaction, &format!("RELEASE SAVEPOINT {}", open.savepoints[number].0)).await;
                open.savepoints.truncate(number);
            }
            Step::RollBackTo(_) | Step::Release(_) => {}
            Step::Commit => {
                transaction.commit().await.expect("commits");
                self.committed.extend(open.stored);
                self.committed_excluded.extend(open.excluded);
                return;
            }
            Step::RollBack => return transaction.rollback().await.expect("rolls back"),
            Step::Drop => return drop(transaction),
        }
        self.transactions[index] = Some((transaction, open));
    }

    async fn write(
        &mut self,
        transaction: &mut OutboxTransaction<D::Store>,
        open: &mut Open,
        ids: &BTreeSet<u8>,
        excluded: bool,
    ) {
        self.writes += 1;
        let write = self.writes;
        let event = |id| Envelope::new("OrderPlaced").aggregate("Order", "1").id(id);
        let stored = ids.iter().map(|id| event(self.id(*id)).json(&write).expect("good"));
        let beside = excluded.then(|| event(self.excluded_id(write)).excluded().json(&write).expect("good"));
        let written = transaction.write_all(stored.chain(beside).collect()).await;

        let is_new = ids.iter().all(|id| !open.stored.contains_key(id) && !self.committed.contains_key(id));
        match written {
            Ok(_) if is_new => {
                open.stored.extend(ids.iter().map(|id| (*id, write)));
                open.excluded.extend(excluded.then_some(write));
            }
            Err(WriteError::Duplicate { .. }) if !is_new => open.refused.extend(ids),
            other => panic!("write {write} of {ids:?}, new: {is_new}: {other:?}"),
        }
    }

    /// Every event that must be delivered, with the number of the write that was committed.
    fn expected(&self) -> Vec<(EventId, u32)> {
        let stored = self.committed.iter().map(|(id, write)| (self.id(*id), *write));
        let excluded = self.committed_excluded.iter().map(|write| (self.excluded_id(*write), *write));
        let mut expected: Vec<_> = stored.chain(excluded).collect();
        expected.sort();
        expected
    }
}

async fn check<D: Database>(
    (db, outbox, recorder): (&D, &Outbox<D::Store>, &Recorder),
    number: u32,
    beside: usize,
    steps: &[(usize, Step)],
) {
    let before = recorder.count();
    let mut trace = Trace {
        db,
        outbox,
        number,
        beside,
        transactions: vec![None, None],
        committed: BTreeMap::new(),
        committed_excluded: Vec::new(),
        writes: 0,
        saves: 0,
    };
    trace.run(steps).await;
    let expected = trace.expected();
    let delivered = || {
        let mut delivered: Vec<(EventId, u32)> =
            recorder.calls()[before..].iter().map(|event| (event.id(), event.payload().expect("a number"))).collect();
        delivered.sort();
        delivered
    };
    eventually(&format!("{expected:?} are delivered"), async || delivered().len() >= expected.len()).await;
    nothing_else_is_delivered(db, outbox).await;
    at_rest(outbox).await;
    assert_eq!(delivered(), expected);
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE event_type = 'OutboxMark'").await, 0);
}

async fn start<D: Database>(db: &D, recorder: &Recorder) -> Outbox<D::Store> {
    outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts")
}

/// On SQLite one transaction at a time writes, and MySQL keeps the locks of what a savepoint takes back, so that others would
/// wait for a transaction that waits for them: `beside` is 1 there.
fn traces<D: Database>(fresh: impl AsyncFn() -> D, beside: usize, cases: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (db, outbox, recorder) = runtime.block_on(async {
        let (db, recorder) = (fresh().await, Recorder::done());
        let outbox = start(&db, &recorder).await;
        (db, outbox, recorder)
    });
    let seed = Seed::of_this_run().number();
    let config = Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() };
    let number = std::cell::Cell::new(0);
    let result = TestRunner::new(config).run(&proptest::collection::vec((0_usize..2, step()), 1..16), |steps| {
        number.set(number.get() + 1);
        runtime.block_on(check((&db, &outbox, &recorder), number.get(), beside, &steps));
        Ok(())
    });
    runtime.block_on(outbox.shutdown());
    let _inside = runtime.enter();
    drop((outbox, db));
    result.unwrap_or_else(|failure| panic!("OUTBOX_TEST_SEED={seed}: {failure}"));
}

#[test]
fn whatever_a_caller_takes_back_by_savepoints_commits_and_deliveries_agree_on_postgres() {
    traces(Postgres::fresh, 2, 60);
}

#[test]
fn whatever_a_caller_takes_back_by_savepoints_commits_and_deliveries_agree_on_mysql() {
    traces(MySql::fresh, 1, 60);
}

#[test]
fn whatever_a_caller_takes_back_by_savepoints_commits_and_deliveries_agree_on_sqlite() {
    traces(Sqlite::fresh, 1, 60);
}

/// The id that a savepoint took back is written and committed by somebody else before our own commit.
async fn an_id_of_somebody_else<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let outbox = start(db, &recorder).await;
    let keyed = |number: u32| {
        let id = "order-42-placed".parse::<EventId>().expect("an id");
        Envelope::new("OrderPlaced").aggregate("Order", "42").id(id).json(&number).expect("good")
    };

    let mut ours = outbox.begin().await.expect("begins");
    db.run_on(&mut ours, "SAVEPOINT mine").await;
    ours.write(keyed(1)).await.expect("writes");
    db.run_on(&mut ours, "ROLLBACK TO SAVEPOINT mine").await;
    let mut theirs = outbox.begin().await.expect("begins");
    theirs.write(keyed(2)).await.expect("it is free again");
    theirs.commit().await.expect("commits");
    ours.commit().await.expect("commits");

    eventually("it is delivered", async || recorder.count() > 0).await;
    nothing_else_is_delivered(db, &outbox).await;
    at_rest(&outbox).await;
    let delivered: Vec<u32> = recorder.calls().iter().map(|event| event.payload().expect("a number")).collect();
    assert_eq!(delivered, [2], "theirs alone was committed");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_somebody_else_commits_after_a_savepoint_took_it_back_is_delivered_once_on_postgres() {
    an_id_of_somebody_else(&Postgres::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_somebody_else_commits_after_a_savepoint_took_it_back_is_delivered_once_on_mysql() {
    an_id_of_somebody_else(&MySql::fresh().await).await;
}

/// A mark is the row that stands for an excluded event. On SQLite the event gets the number of the one that was taken back.
async fn an_event_after_a_mark_that_was_taken_back<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let outbox = start(db, &recorder).await;
    let event = || Envelope::new("OrderPlaced").aggregate("Order", "42");

    let mut transaction = outbox.begin().await.expect("begins");
    db.run_on(&mut transaction, "SAVEPOINT mine").await;
    transaction.write(event().excluded().json(&1).expect("good")).await.expect("writes");
    db.run_on(&mut transaction, "ROLLBACK TO SAVEPOINT mine").await;
    transaction.write(event().json(&2).expect("good")).await.expect("writes");
    transaction.commit().await.expect("commits");

    eventually("it is delivered", async || recorder.count() > 0).await;
    at_rest(&outbox).await;
    let delivered: Vec<u32> = recorder.calls().iter().map(|event| event.payload().expect("a number")).collect();
    assert_eq!(delivered, [2]);
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 1, "its row is there, so that a crash would not lose it");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_after_a_mark_that_was_taken_back_is_kept_on_postgres() {
    an_event_after_a_mark_that_was_taken_back(&Postgres::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_after_a_mark_that_was_taken_back_is_kept_on_mysql() {
    an_event_after_a_mark_that_was_taken_back(&MySql::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_after_a_mark_that_was_taken_back_is_kept_on_sqlite() {
    an_event_after_a_mark_that_was_taken_back(&Sqlite::fresh().await).await;
}

/// An id that was taken back is written again, behind another one. On SQLite each row gets the number of a row that was taken
/// back, and the last one the same id too.
async fn an_id_written_again_behind_another<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let outbox = start(db, &recorder).await;
    let event = |id: &str, number: u32| {
        let id = id.parse::<EventId>().expect("an id");
        Envelope::new("OrderPlaced").aggregate("Order", "42").id(id).json(&number).expect("good")
    };

    let mut transaction = outbox.begin().await.expect("begins");
    db.run_on(&mut transaction, "SAVEPOINT mine").await;
    transaction.write(event("first", 1)).await.expect("writes");
    transaction.write(event("second", 2)).await.expect("writes");
    db.run_on(&mut transaction, "ROLLBACK TO SAVEPOINT mine").await;
    transaction.write_all(vec![event("third", 3), event("second", 4)]).await.expect("writes");
    transaction.commit().await.expect("commits");

    eventually("both are delivered", async || recorder.count() > 1).await;
    nothing_else_is_delivered(db, &outbox).await;
    at_rest(&outbox).await;
    let mut delivered: Vec<u32> = recorder.calls().iter().map(|event| event.payload().expect("a number")).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, [3, 4], "as they were committed");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_written_again_behind_another_is_delivered_as_it_was_committed_on_postgres() {
    an_id_written_again_behind_another(&Postgres::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_written_again_behind_another_is_delivered_as_it_was_committed_on_mysql() {
    an_id_written_again_behind_another(&MySql::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_written_again_behind_another_is_delivered_as_it_was_committed_on_sqlite() {
    an_id_written_again_behind_another(&Sqlite::fresh().await).await;
}
