//! Short ways to say what the facts are about.

use std::time::Duration;

use outbox::event::{EnvelopeBuilder, Fence, OwnerId};
use outbox::store::{
    Audit, Claimed, DeadFilter, DeadStore, Expectations, HeldPartition, NewRow, Node, Ownership, Record, Settled, Settlement,
};
use outbox::{Envelope, EventId, Status, Store, StoreError};
use support::Harness;

/// How long the claims of these tests hold.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// A moment: less than anything that these tests wait for.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

pub(crate) fn owner(label: &str) -> OwnerId {
    OwnerId::generate(label)
}

pub(crate) fn ownership() -> Ownership {
    Ownership { owner: owner("writer"), lease: LEASE }
}

/// An envelope in the making, by the database's clock.
pub(crate) async fn event(db: &dyn Harness, event_type: &str) -> EnvelopeBuilder {
    Envelope::new(event_type).now(db.now().await)
}

pub(crate) async fn plain(db: &dyn Harness) -> Envelope {
    event(db, "OrderPlaced").await.aggregate("Order", "42").json(&1).expect("a good envelope")
}

pub(crate) async fn plains(db: &dyn Harness, count: usize) -> Vec<Envelope> {
    let mut envelopes = Vec::with_capacity(count);
    for _ in 0..count {
        envelopes.push(plain(db).await);
    }
    envelopes
}

/// The names that statements of the stores give to columns of their own.
const DERIVED_COLUMNS: [&str; 32] = [
    "alive_until",
    "bytes",
    "bytes_before",
    "cause",
    "claimed",
    "cost",
    "earlier",
    "epoch",
    "fence",
    "given",
    "head",
    "id",
    "is_clear",
    "is_free",
    "is_held",
    "is_waited_for",
    "kind",
    "note",
    "now",
    "number",
    "owner",
    "place",
    "position",
    "route",
    "sequence",
    "settled",
    "since",
    "started_at",
    "stops",
    "value",
    "waiting",
    "waits",
];

/// Names of columns that other tables have, which statements join with these ones.
const COLUMNS_OF_JOINED_TABLES: [(&str, &[&str]); 4] = [
    (
        "outbox_event_partition",
        &[
            "abandoned",
            "aggregate_type",
            "alive_until",
            "attempts",
            "available_at",
            "claim_seq",
            "claims",
            "created_at",
            "due_at",
            "event_id",
            "event_type",
            "expires_at",
            "headers",
            "lease_end",
            "locked_by",
            "payload",
            "seq",
            "status",
            "tenant_id",
        ],
    ),
    ("outbox_event_node", &["epoch", "partition_id"]),
    ("outbox_event_route", &["blocked", "dead", "parked", "paused_at", "paused_by", "reason", "waiting"]),
    ("outbox_event_pause", &["blocked", "dead", "first_seen_at", "only_relayed", "parked", "waiting"]),
];

/// Adds columns with these names to the tables, as a user may.
pub(crate) async fn add_user_columns(db: &dyn Harness) {
    let to_events: (&str, &[&str]) = ("outbox_event", &DERIVED_COLUMNS);
    for (table, columns) in COLUMNS_OF_JOINED_TABLES.into_iter().chain([to_events]) {
        for column in columns {
            db.execute(&format!("ALTER TABLE {table} ADD COLUMN {column} INTEGER")).await;
        }
    }
}

/// Inserts rows that anybody may claim.
pub(crate) async fn write(db: &dyn Harness, envelopes: &[Envelope]) -> Vec<Option<u64>> {
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    db.store().write(&rows, &ownership()).await.expect("the rows are written")
}

/// Inserts one plain event.
pub(crate) async fn write_one(db: &dyn Harness) -> EventId {
    let envelope = plain(db).await;
    write(db, std::slice::from_ref(&envelope)).await;
    envelope.id()
}

/// Of the host, by which a database is judged.
pub(crate) fn expectations() -> Expectations {
    Expectations { lease: LEASE, deadline: LEASE / 2, max_payload: 1 << 20, connections: 5, index: None }
}

/// Claims the events of any partition that have been due longest, for a new owner.
pub(crate) async fn claim_due(store: &dyn Store, limit: usize) -> Result<Vec<Claimed>, StoreError> {
    support::claim_due(store, &owner("host"), LEASE, limit).await
}

pub(crate) async fn claim(db: &dyn Harness, limit: usize) -> Vec<Claimed> {
    claim_due(&*db.store(), limit).await.expect("the claim works")
}

/// Says that a host is alive for a lease.
pub(crate) async fn beat(store: &dyn Store, owner: &OwnerId) {
    store.heartbeat(&Node::new(owner.clone(), "host 1", "multi_node", "1"), LEASE).await.expect("writes a heartbeat");
}

/// Says that a host is alive for a lease, and keeps partitions for it.
pub(crate) async fn keep(store: &dyn Store, owner: &OwnerId, most: u16, of: u16) -> Vec<HeldPartition> {
    beat(store, owner).await;
    store.keep_partitions(owner, most, of).await.expect("keeps partitions")
}

/// As [`keep`]. Returns the numbers.
pub(crate) async fn kept(store: &dyn Store, owner: &OwnerId, most: u16, of: u16) -> Vec<u16> {
    keep(store, owner, most, of).await.into_iter().map(|partition| partition.number).collect()
}

/// Claims the one event that is due.
pub(crate) async fn claim_one(db: &dyn Harness) -> Fence {
    let claimed = claim(db, 10).await;
    assert_eq!(claimed.len(), 1, "exactly one event is due: {claimed:?}");
    claimed[0].fence
}

pub(crate) fn ids(claimed: &[Claimed]) -> Vec<EventId> {
    claimed.iter().map(|claimed| claimed.event.as_ref().expect("a readable row").id()).collect()
}

/// Writes one outcome; returns how many were dropped.
pub(crate) async fn settle(db: &dyn Harness, fence: Fence, settlement: Settlement) -> u64 {
    db.store().settle(&[Settled::new(fence, settlement)]).await.expect("the outcome is written")
}

pub(crate) async fn row(db: &dyn Harness, id: EventId) -> Record {
    db.store().get(id).await.expect("the row can be read").expect("the row is there")
}

/// What an outcome may have changed, in a form that can be compared; `null` when the row is gone.
pub(crate) async fn snapshot(db: &dyn Harness, id: EventId) -> String {
    let record = db.store().get(id).await.expect("the row can be looked for");
    serde_json::to_string(&record).expect("a record is JSON")
}

pub(crate) fn dead(error: &str) -> Settlement {
    Settlement::Dead { error: error.to_owned(), counted: true, blocks: false }
}

pub(crate) fn retry(after: Duration) -> Settlement {
    Settlement::Retry { after, error: "no luck".to_owned() }
}

/// Writes one event and brings it to an end.
pub(crate) async fn finished(db: &dyn Harness, settlement: Settlement) -> EventId {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    assert_eq!(settle(db, fence, settlement).await, 0, "the outcome is ours");
    id
}

pub(crate) async fn status(db: &dyn Harness, id: EventId) -> Status {
    row(db, id).await.status
}

/// Who does things by hand in these tests.
pub(crate) fn by_hand() -> Audit {
    Audit { actor: "tester".to_owned(), reason: Some("to see".to_owned()) }
}

/// Replays one batch of the dead events that match. Returns how many.
pub(crate) async fn replay_batch(
    store: &(impl DeadStore + ?Sized),
    filter: &DeadFilter,
    limit: u32,
    audit: &Audit,
) -> Result<u64, StoreError> {
    let rows = store.dead_rows(filter, 0, limit).await?;
    let rows: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    if rows.is_empty() { Ok(0) } else { store.replay_rows(&rows, filter, audit).await }
}

/// How many waiting events are due now, and the `seq` of the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetriedNow {
    pub(crate) count: u64,
    pub(crate) last: Option<u64>,
}

/// Makes one batch of waiting events due now.
pub(crate) async fn retry_now(
    store: &(impl DeadStore + ?Sized),
    max_attempts: Option<u32>,
    after: u64,
    limit: u32,
    audit: &Audit,
) -> Result<RetriedNow, StoreError> {
    let rows = store.waiting_rows(max_attempts, after, limit).await?;
    let rows: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    let count = if rows.is_empty() { 0 } else { store.retry_rows_now(&rows, max_attempts, audit).await? };
    Ok(RetriedNow { count, last: rows.last().copied() })
}

/// Partitions, all with this epoch.
pub(crate) fn of_epoch(epoch: u32, numbers: impl IntoIterator<Item = u16>) -> Vec<HeldPartition> {
    numbers.into_iter().map(|number| HeldPartition { number, epoch, abandoned: false }).collect()
}
