//! Thousands of aggregates with blocked events: a host reads them page by page.

use outbox::store::{Index, NewRow, PARTITIONS, SchemaStore, Unblocked, WaitsFor};
use outbox::{Envelope, MySqlStore, Store};
use servers::{Database, Durability, Server};
use sqlx::{Connection, Executor, MySqlConnection};
use support::{Harness, rows_read};

use crate::common::ownership;

const AGGREGATES: u64 = 5_000;
const PAGE: u32 = 50;

/// Lets each later event wait behind the first one of its aggregate.
const SET_ASIDE: &str = "UPDATE outbox_event SET behind = seq - 1, due_at = NULL WHERE event_type = 'Later'";

/// Inserts two events of each aggregate.
async fn insert(store: &dyn Store) {
    let now = store.now().await.expect("the database tells the time");
    let envelope = |event_type: &str, aggregate: u64| {
        Envelope::new(event_type).now(now).aggregate("Order", aggregate.to_string()).json(&1).expect("a good envelope")
    };
    let envelopes: Vec<Envelope> =
        (0..AGGREGATES).flat_map(|aggregate| ["First", "Later"].map(|event_type| envelope(event_type, aggregate))).collect();
    for part in envelopes.chunks(1_000) {
        let rows: Vec<_> = part.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
        let written = store.write(&rows, &ownership()).await.expect("writes");
        let numbers: Vec<u64> = written.into_iter().map(|number| number.expect("it is new")).collect();
        assert!(numbers.chunks(2).all(|pair| pair[1] == pair[0] + 1), "an aggregate's events have successive numbers");
    }
}

/// Lists a page of blockers, and unblocks the events of each aggregate whose turn it is, as a host does. Returns the last blocker of the
/// page.
async fn look(store: &dyn Store, after: u64) -> Option<u64> {
    let partitions: Vec<u16> = (0..PARTITIONS).collect();
    let page = store.blockers(&partitions, after, PAGE).await.expect("looks");
    let blockers: Vec<u64> = page.iter().map(|blocker| blocker.sequence).collect();
    assert!(blockers.is_sorted() && blockers.first().is_none_or(|first| *first > after), "{blockers:?}");
    let unblocked = store.unblock(&blockers, WaitsFor::Unresolved, PAGE).await.expect("looks");
    assert_eq!(unblocked, Unblocked::default(), "each first event is still waited for");
    assert!(blockers.is_empty() || blockers.len() == PAGE as usize, "{}", blockers.len());
    blockers.last().copied()
}

pub(crate) async fn thousands_of_blocked_aggregates_are_looked_at_page_by_page(db: &dyn Harness) {
    let store = db.store();
    insert(&*store).await;
    db.execute(SET_ASIDE).await;

    let (mut after, mut pages) = (0, 0);
    while let Some(last) = look(&*store, after).await {
        (after, pages) = (last, pages + 1);
    }

    assert_eq!(pages * u64::from(PAGE), AGGREGATES);
    let plans = store.plans().await.expect("explains");
    let of_look = ["blockers", "first behind", "unblock", "heads of queues"];
    let bad: Vec<_> = plans.iter().filter(|plan| of_look.contains(&plan.statement) && !plan.good).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE behind IS NOT NULL").await, 5_000);
}

/// No other program uses this server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_look_at_thousands_of_blocked_aggregates_reads_few_rows_on_mariadb() {
    let server = Server::start(Database::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs it");
    let store = MySqlStore::connect(&server.url()).await.expect("connects");
    store.migrate_up().await.expect("migrates");
    store.add_index(Index::OrderedByAggregate).await.expect("adds it");
    insert(&store).await;
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    admin.execute(SET_ASIDE).await.expect("changes");
    let first = look(&store, 0).await.expect("a page");

    let before = rows_read(&mut admin).await;
    let second = look(&store, first).await.expect("another page");
    let read = rows_read(&mut admin).await - before;

    assert!(second > first);
    assert!(read < AGGREGATES / 2, "{read} rows are read for a page of {PAGE}");
}
