//! A model of the store: its specification, in memory, and traces of calls that every database must answer alike.
//!
//! `table.rs`, `taking.rs`, `effects.rs`, `order.rs`, `hand.rs` and `looking.rs` say what each call of [`outbox::Store`] does, without any
//! database. `step.rs` and `chance.rs` make traces: calls by several owners, transactions that end late, outcomes under any
//! fence, time that passes. `play*.rs` plays a trace on a database and on the table side by side; after each step the answers
//! and all rows must be equal.
//!
//! Times are whole hours apart, and rows are moved back where a server's clock cannot be moved on, so a trace may take half an
//! hour without a different answer. On SQLite, whose clock is the test's, times are compared to the microsecond. SQLite has one
//! writer at a time: what a late transaction does is done at its end there.
//!
//! Each trace comes from a seed, 0 and up. One that fails is shrunk and printed with its seed:
//! `OUTBOX_TEST_SEED=4711 cargo xtask test -p outbox-tests --test store model` plays it again.
//! `OUTBOX_TEST_TRACES=50000` plays so many traces on each database, from the seed on; without it they are 500.

mod chance;
mod compare;
mod effects;
mod hand;
mod late;
mod looking;
mod order;
mod play;
mod play_effects;
mod play_hand;
mod play_hold;
mod play_line;
mod play_look;
mod play_write;
mod shrink;
mod step;
mod table;
mod taking;

use std::collections::HashMap;

use outbox::Envelope;
use outbox::store::{NewRow, Ownership, WaitsFor, WriteStore};
use support::{Database, MySql, Postgres, Sqlite};
use tokio::runtime::Runtime;

use self::play::{AGGREGATE_IDS, Player};
use self::play_write::partition_number;
use self::shrink::shrink;
use self::step::{LOOKS, Partitions, Step};
use self::table::Fault;

/// How many traces are played unless `OUTBOX_TEST_TRACES` says otherwise.
const TRACES: u64 = 500;
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
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL, epoch = 0 WHERE epoch > 0;
COMMIT";

#[test]
fn sqlite_answers_every_trace_as_specified() {
    let runtime = runtime();
    let database = runtime.block_on(Sqlite::fresh());
    play_all(&runtime, &database);
}

#[test]
fn postgres_answers_every_trace_as_specified() {
    let runtime = runtime();
    let database = runtime.block_on(Postgres::fresh());
    play_all(&runtime, &database);
}

#[test]
fn mysql_answers_every_trace_as_specified() {
    let runtime = runtime();
    let database = runtime.block_on(MySql::fresh());
    play_all(&runtime, &database);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

/// Plays one trace for each seed, on one database that is emptied in between.
fn play_all<D: Database>(runtime: &Runtime, database: &D) {
    let (first, count) = chosen();
    let (partition_of, mut newest) = runtime.block_on(partitions(database));
    runtime.block_on(database.execute(play_effects::refusals(database.store().kind())));
    let mut fault = |steps: &[Step], name: String| {
        let (result, last) = runtime.block_on(play(database, steps, name, newest, partition_of.clone()));
        newest = last;
        result.err()
    };
    for seed in first..first + count {
        let trace = chance::trace(seed);
        if let Some(at_first) = fault(&trace, format!("{seed}-")) {
            let mut tries = 0..;
            let mut again = |steps: &[Step]| fault(steps, format!("{seed}-{}-", tries.next().unwrap_or(0_u64)));
            let shrunk = shrink(trace, SHRINKING, |steps| again(steps).is_some());
            let at_last = again(&shrunk).unwrap_or_else(|| format!("it did not fail again; at first: {at_first}"));
            panic!("{}", story(seed, &at_last, &shrunk));
        }
    }
}

/// Plays one trace. Returns what was different, and the greatest number that a committed row has had.
async fn play<D: Database>(
    database: &D,
    steps: &[Step],
    name: String,
    newest: u64,
    partition_of: HashMap<String, u16>,
) -> (Result<(), Fault>, u64) {
    database.execute(EMPTY).await;
    let mut player = Player::new(database, name, newest, partition_of).await;
    let result = play_steps(&mut player, steps).await;
    player.end().await;
    (result, player.table.newest())
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
    let ownership = Ownership { owner: outbox::event::OwnerId::generate("partitions"), lease: step::span(1) };
    let numbers = database.typed().write(&rows, &ownership).await.expect("the rows are written");
    let mut partitions = HashMap::new();
    for (key, seq) in AGGREGATE_IDS.iter().zip(&numbers) {
        let seq = seq.expect("the ids are new");
        let partition = database.number(&format!("SELECT partition_id FROM outbox_event WHERE seq = {seq}")).await;
        partitions.insert((*key).to_owned(), partition_number(partition).expect("a partition"));
    }
    (partitions, numbers.into_iter().flatten().max().expect("rows were written"))
}

/// The first seed and how many.
#[expect(clippy::disallowed_methods, reason = "tests are configured by their command, through the environment")]
fn chosen() -> (u64, u64) {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
    };
    match (number("OUTBOX_TEST_SEED"), number("OUTBOX_TEST_TRACES")) {
        (Some(seed), traces) => (seed, traces.unwrap_or(1)),
        (None, traces) => (0, traces.unwrap_or(TRACES)),
    }
}

fn story(seed: u64, fault: &str, steps: &[Step]) -> String {
    let steps: Vec<String> = steps.iter().enumerate().map(|(number, step)| format!("  {}. {step:?}", number + 1)).collect();
    format!("seed {seed} (OUTBOX_TEST_SEED={seed}): {fault}\nthe trace, shrunk:\n{}", steps.join("\n"))
}
