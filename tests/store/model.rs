//! A model of the store: its specification, in memory, and traces of calls that every database must answer alike.
//!
//! `table.rs`, `taking.rs`, `effects.rs`, `order.rs`, `hand.rs` and `looking.rs` say what each call of [`outbox::Store`] does,
//! without any database. `step.rs`, `chance.rs` and `plots.rs` make traces: calls by several owners who take partitions from
//! each other, stall, and come back with what they had in hand; sessions that end, transactions that end late, outcomes that
//! wait for a locked row, outcomes under any fence, time that passes. `play*.rs` plays a trace on a database and on the table
//! side by side; after each step the answers and all rows must be equal. `watch.rs` knows nothing of the table, and holds the
//! answers and the rows of the database against what must never be: two outcomes of one delivery, two holders of one row.
//! `tally.rs` counts what traces came to.
//!
//! The table has columns that a user added, named like those that statements give to what they compute: none of them is taken for one.
//!
//! Times are whole hours apart, and rows are moved back where a server's clock cannot be moved on, so a trace may take half an
//! hour without a different answer. On SQLite, whose clock is the test's, times are compared to the microsecond. SQLite has one
//! writer at a time: what a late transaction does is done at its end there.
//!
//! Each trace comes from a seed, 0 and up. One that fails is shrunk and printed with its seed:
//! `OUTBOX_TEST_SEED=4711 cargo xtask test -p outbox-tests --test store model` plays it again. `OUTBOX_TEST_TRACES=50000` plays
//! 50,000 traces on each database, from the seed on; without it, 100. A long run says how far it is each minute, and is
//! faster with several players, each on a database of its own (SQLite also in memory: `TMPDIR`); on one database:
//!
//! ```text
//! TMPDIR=/dev/shm OUTBOX_TEST_TRACES=200000 OUTBOX_TEST_PLAYERS=3 cargo xtask test -p outbox-tests --test store model::postgres
//! ```

mod chance;
mod compare;
mod effects;
mod hand;
mod late;
mod looking;
mod order;
mod parts;
mod play;
mod play_effects;
mod play_hand;
mod play_hold;
mod play_locked;
mod play_look;
mod play_order;
mod play_write;
mod plots;
mod shrink;
mod step;
mod table;
mod taking;
mod tally;
mod watch;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use outbox::Envelope;
use outbox::store::{NewRow, Ownership, WaitsFor, WriteStore};
use support::{Database, MySql, Postgres, Sqlite};
use tokio::runtime::Runtime;

use self::parts::{LOOKS, Partitions};
use self::play::{AGGREGATE_IDS, Player};
use self::play_write::partition_number;
use self::shrink::shrink;
use self::step::Step;
use self::table::Fault;
use self::tally::Tally;
use crate::common::add_user_columns;

/// How many traces are played unless `OUTBOX_TEST_TRACES` says otherwise.
const TRACES: u64 = 100;
/// How often a failing trace is played again in search of a shorter one.
const SHRINKING: u32 = 1_000;

/// Nothing of an earlier trace is left.
const EMPTY: &str = "
BEGIN;
DELETE FROM outbox_event;
DELETE FROM outbox_event_route;
DELETE FROM outbox_event_pause;
DELETE FROM outbox_event_node;
DELETE FROM outbox_event_audit;
DELETE FROM outbox_event_state;
DELETE FROM outbox_event_state_usage;
UPDATE outbox_event_partition SET owner = NULL, epoch = 0 WHERE epoch > 0;
COMMIT";

#[test]
fn sqlite_answers_every_trace_as_specified() {
    play_all("SQLite", Sqlite::fresh);
}

#[test]
fn postgres_answers_every_trace_as_specified() {
    play_all("PostgreSQL", Postgres::fresh);
}

#[test]
fn mysql_answers_every_trace_as_specified() {
    play_all("MySQL", MySql::fresh);
}

/// Plays one trace for each seed; each player on one database that is emptied in between.
fn play_all<D: Database>(name: &str, fresh: impl AsyncFn() -> D + Sync) {
    let run = Run::chosen();
    std::thread::scope(|scope| {
        for _ in 0..run.players {
            scope.spawn(|| {
                let runtime = runtime();
                let database = runtime.block_on(fresh());
                play_some(name, &run, &runtime, &database);
            });
        }
    });
    let tally = run.tally.into_inner().expect("no player died");
    if let Some(fault) = run.fault.into_inner().expect("no player died") {
        panic!("{fault}");
    }
    say(&format!("{name}: {} traces from seed {} in {:?}: {tally}\n", run.count, run.first, run.started.elapsed()));
    // Few traces need not come to everything.
    assert!(run.count < TRACES || tally.missing().is_empty(), "{name}: no trace came to {:?}", tally.missing());
}

/// What several players share.
struct Run {
    first: u64,
    count: u64,
    players: u64,
    started: Instant,
    /// The next seed, counted from the first.
    next: AtomicU64,
    /// The minutes of which was told how far it is.
    told: AtomicU64,
    fault: Mutex<Option<String>>,
    tally: Mutex<Tally>,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

fn play_some<D: Database>(name: &str, run: &Run, runtime: &Runtime, database: &D) {
    runtime.block_on(add_user_columns(database));
    let (partition_of, mut newest) = runtime.block_on(partitions(database));
    runtime.block_on(database.execute(play_effects::refusals(database.store().kind())));
    let mut fault = |steps: &[Step], name: String| {
        let (result, last, tally) = runtime.block_on(play(database, steps, name, newest, partition_of.clone()));
        newest = last;
        run.tally.lock().expect("no player died").add_all(&tally);
        result.err()
    };
    while let Some(seed) = run.next(name) {
        let trace = chance::trace(seed);
        if let Some(at_first) = fault(&trace, format!("{seed}-")) {
            let mut tries = 0..;
            let mut again = |steps: &[Step]| fault(steps, format!("{seed}-{}-", tries.next().unwrap_or(0_u64)));
            let shrunk = shrink(trace, SHRINKING, |steps| again(steps).is_some());
            let at_last = again(&shrunk).unwrap_or_else(|| format!("it did not fail again; at first: {at_first}"));
            run.ends_by(story(seed, &at_last, &shrunk));
        }
    }
}

/// Plays one trace. Returns what was different, the greatest number that a committed row has had, and what it came to.
async fn play<D: Database>(
    database: &D,
    steps: &[Step],
    name: String,
    newest: u64,
    partition_of: HashMap<String, u16>,
) -> (Result<(), Fault>, u64, Tally) {
    database.execute(EMPTY).await;
    let mut player = Player::new(database, name, newest, partition_of).await;
    let result = play_steps(&mut player, steps).await;
    player.end().await;
    (result, player.table.newest(), player.tally)
}

async fn play_steps<D: Database>(player: &mut Player<'_, D>, steps: &[Step]) -> Result<(), Fault> {
    for (number, step) in steps.iter().enumerate() {
        player.step(step).await.map_err(|fault| format!("step {}: {fault}", number + 1))?;
    }
    for at in LOOKS {
        let look = player.look(at, 0, WaitsFor::Unresolved, Partitions::All).await;
        look.map_err(|fault| format!("at the end: {fault}"))?;
    }
    player.agree_partitions().await
}

/// The partition of each aggregate id that traces use, and the greatest number given out for it. How a database hashes is its
/// own business.
async fn partitions<D: Database>(database: &D) -> (HashMap<String, u16>, u64) {
    let now = database.now().await;
    let of = |aggregate_id: &str| Envelope::new("Partition").now(now).aggregate("Order", aggregate_id).json(&1).expect("good");
    let envelopes = AGGREGATE_IDS.map(of);
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let ownership = Ownership { owner: outbox::event::OwnerId::generate("partitions"), lease: parts::span(1) };
    let numbers = database.typed().write(&rows, &ownership).await.expect("the rows are written");
    let mut partitions = HashMap::new();
    for (key, seq) in AGGREGATE_IDS.iter().zip(&numbers) {
        let seq = seq.expect("the ids are new");
        let partition = database.number(&format!("SELECT partition_id FROM outbox_event WHERE seq = {seq}")).await;
        partitions.insert((*key).to_owned(), partition_number(partition).expect("a partition"));
    }
    (partitions, numbers.into_iter().flatten().max().expect("rows were written"))
}

impl Run {
    /// From the seed on that was asked for, as many traces as were asked for.
    #[expect(clippy::disallowed_methods, reason = "tests are configured by their command, through the environment")]
    fn chosen() -> Self {
        let number = |name: &str| {
            std::env::var(name)
                .ok()
                .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
        };
        let (first, count) = match (number("OUTBOX_TEST_SEED"), number("OUTBOX_TEST_TRACES")) {
            (Some(seed), traces) => (seed, traces.unwrap_or(1)),
            (None, traces) => (0, traces.unwrap_or(TRACES)),
        };
        Self {
            first,
            count,
            players: number("OUTBOX_TEST_PLAYERS").unwrap_or(1),
            started: Instant::now(),
            next: AtomicU64::new(0),
            told: AtomicU64::new(0),
            fault: Mutex::new(None),
            tally: Mutex::new(Tally::default()),
        }
    }

    /// The seed of the next trace; none when all are played, or one has failed.
    fn next(&self, name: &str) -> Option<u64> {
        let minutes = self.started.elapsed().as_secs() / 60;
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        if self.told.fetch_max(minutes, Ordering::Relaxed) < minutes {
            say(&format!("{name}: {next} traces of {} after {minutes} min\n", self.count));
        }
        let goes_on = next < self.count && self.fault.lock().expect("no player died").is_none();
        goes_on.then(|| self.first + next)
    }

    /// No further trace is played. The first fault counts.
    fn ends_by(&self, fault: String) {
        self.fault.lock().expect("no player died").get_or_insert(fault);
    }
}

/// Shown in any case: what a test prints is shown only when it fails.
fn say(figure: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(figure.as_bytes());
}

fn story(seed: u64, fault: &str, steps: &[Step]) -> String {
    let steps: Vec<String> = steps.iter().enumerate().map(|(number, step)| format!("  {}. {step:?}", number + 1)).collect();
    format!("seed {seed} (OUTBOX_TEST_SEED={seed}): {fault}\nthe trace, shrunk:\n{}", steps.join("\n"))
}
