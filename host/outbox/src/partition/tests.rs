use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::event::{Envelope, EventId, Fence, OwnerId};
use crate::queue::InFlight;
use crate::store::sqlite::SqliteOptions;
use crate::store::{
    ClaimStore, Claimed, NewRow, Node, NodeStore, Ownership, PARTITIONS, PartitionStore, Position, SchemaStore, SqliteStore,
    StoreError, TransactionalStore, WriteStore,
};
use crate::time::{ManualClock, Timestamp};

const LEASE: Duration = Duration::from_secs(30);
/// An event behind which there may be more.
const FURTHER: Position = Position { due_at: Timestamp::from_micros(1), sequence: 1 };

/// A careful read that claimed this many events.
fn claimed(claimed: usize, reached: Reached) -> CarefulRead {
    CarefulRead { claimed, waiting: 0, reached }
}

/// A table, whose clock the test sets.
struct Table {
    store: SqliteStore,
    clock: Arc<ManualClock>,
    _directory: tempfile::TempDir,
}

/// A host that works on it.
struct Host {
    partitions: Arc<Partitions>,
    owner: OwnerId,
    store: SqliteStore,
}

impl Table {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_000_000)));
        let options = SqliteOptions::new(directory.path().join("outbox.db")).create(true).clock(clock.clone());
        let store = SqliteStore::open_with(options).await.expect("opens");
        store.migrate_up().await.expect("migrates");
        Self { store, clock, _directory: directory }
    }

    async fn execute(&self, sql: &'static str) {
        let mut transaction = self.store.begin().await.expect("begins");
        sqlx::raw_sql(sql).execute(&mut *transaction).await.expect("is good SQL");
        SqliteStore::commit(transaction).await.expect("commits");
    }

    /// Writes an event.
    async fn write(&self) -> EventId {
        let envelope = Envelope::new("X").json(&1).expect("valid");
        let ownership = Ownership { owner: OwnerId::generate("host"), lease: LEASE };
        self.store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership).await.expect("writes");
        envelope.id()
    }

    fn host(&self, share: Share) -> Host {
        let partitions = Arc::new(Partitions::new(share, false, 100));
        Host { partitions, owner: OwnerId::generate("host"), store: self.store.clone() }
    }
}

impl Host {
    /// Claims the first event of the table.
    async fn claim(&self) -> Vec<Claimed> {
        self.store.claim(&self.owner, LEASE, &[Fence::new(1, 0, 0)]).await.expect("claims")
    }

    /// One beat, with this many hosts alive. Returns whether its poller is to look.
    async fn keep(&self, live: u32) -> bool {
        self.try_keep(live).await.expect("keeps")
    }

    async fn try_keep(&self, live: u32) -> Result<bool, StoreError> {
        let beat = self.partitions.begin_beat();
        self.beat().await;
        let is_news = self.partitions.keep(&self.store, &self.owner, live).await?;
        self.partitions.renew(&beat, LEASE);
        Ok(is_news)
    }

    async fn beat(&self) {
        let node = Node::new(self.owner.clone(), "host 1", "multi_node", "1");
        self.store.heartbeat(&node, LEASE).await.expect("writes a heartbeat");
    }

    /// The epoch under which the table says that it holds a partition.
    async fn epoch(&self, number: u16) -> u32 {
        let held = self.store.keep_partitions(&self.owner, 0, PARTITIONS).await.expect("keeps");
        held.iter().find(|held| held.number == number).expect("it is held").epoch
    }

    async fn leave(&self) {
        self.partitions.leave(&self.store, &self.owner).await.expect("leaves");
    }
}

/// An event in flight of each of these partitions.
async fn in_hand(host: &Host, numbers: std::ops::Range<u16>) -> Vec<Hold> {
    let held = host.store.keep_partitions(&host.owner, 0, PARTITIONS).await.expect("keeps");
    let held = held.into_iter().filter(|held| numbers.contains(&held.number));
    held.map(|held| host.partitions.hold(held.number, held.epoch).expect("it is open")).collect()
}

#[tokio::test]
async fn hosts_come_to_an_even_share_and_what_is_in_hand_stays_until_it_is_not() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Even), table.host(Share::Even));
    assert!(first.keep(1).await && first.partitions.is_whole());
    let last = PARTITIONS - 1;
    let epoch = first.epoch(last).await;
    let hold = first.partitions.hold(last, epoch).expect("it is open");

    assert!(first.keep(2).await, "its poller gives back what waits for a worker");
    assert_eq!(first.partitions.open().all, (0..PARTITIONS / 2).collect::<Vec<_>>());
    assert!(first.partitions.hold(last, epoch).is_none(), "nothing more is taken of what is leaving");
    assert!(hold.lease_end().is_some(), "and what was taken is this host's still");
    assert!(second.keep(2).await);
    assert_eq!(second.partitions.open().all, (PARTITIONS / 2..last).collect::<Vec<_>>(), "all but the one that is in hand");

    drop(hold);
    assert!(!first.keep(2).await, "nothing new, and nothing to give back");
    assert!(second.keep(2).await);
    assert_eq!(second.partitions.open().all, (PARTITIONS / 2..PARTITIONS).collect::<Vec<_>>());
    assert_eq!(second.epoch(last).await, epoch + 1);
    assert_eq!(first.partitions.is_held(last, epoch), Some(false));
    assert!(second.partitions.open().careful.is_empty(), "they were given back");
}

#[tokio::test]
async fn a_partition_that_does_not_become_empty_is_read_again() {
    let table = Table::new().await;
    let host = table.host(Share::Even);
    host.keep(1).await;
    let holds = in_hand(&host, 0..PARTITIONS).await;
    host.keep(2).await;
    host.keep(2).await;
    assert_eq!(host.partitions.open().all, (0..PARTITIONS / 2).collect::<Vec<_>>(), "they may still become empty");
    host.partitions.lock().in_hand_since.values_mut().for_each(|since| *since -= EMPTIES_WITHIN);

    assert!(host.keep(2).await);

    assert_eq!(host.partitions.open().all, (PARTITIONS / 2..PARTITIONS).collect::<Vec<_>>(), "now the others may");
    host.partitions.lock().in_hand_since.values_mut().for_each(|since| *since -= EMPTIES_WITHIN);
    host.keep(2).await;
    assert_eq!(host.partitions.open().all, (PARTITIONS / 2..PARTITIONS).collect::<Vec<_>>(), "the longest stuck stay open");
    drop(holds);
    host.keep(2).await;
    assert!(host.partitions.lock().in_hand_since.is_empty());
}

#[tokio::test]
async fn a_partition_that_was_abandoned_is_read_carefully_when_it_is_read_again() {
    let table = Table::new().await;
    let (gone, host) = (table.host(Share::Even), table.host(Share::Even));
    gone.keep(1).await;
    table.clock.advance(LEASE * 2);
    host.keep(1).await;
    assert_eq!(host.partitions.open().careful.numbers().len(), usize::from(PARTITIONS));
    let _at_work = in_hand(&host, 0..PARTITIONS).await;
    host.keep(2).await;
    assert_eq!(host.partitions.open().careful.numbers(), host.partitions.open().all, "what is leaving is not read");
    host.partitions.lock().in_hand_since.values_mut().for_each(|since| *since -= EMPTIES_WITHIN);

    host.keep(2).await;

    let again: Vec<u16> = (PARTITIONS / 2..PARTITIONS).collect();
    assert_eq!(host.partitions.open().careful.numbers(), again, "its events may have stopped a host");
}

#[tokio::test]
async fn a_claimed_event_keeps_its_partition_until_it_has_ended_or_its_claim_is_lost() {
    let number = PARTITIONS - 1;
    for is_lost in [false, true] {
        let table = Table::new().await;
        let (first, second) = (table.host(Share::Even), table.host(Share::Even));
        first.keep(1).await;
        let event = table.write().await;
        let in_flight = Arc::new(InFlight::default());
        let is_given_back = async || {
            first.keep(2).await;
            second.keep(2).await;
            second.partitions.open().all.contains(&number)
        };

        let hold = first.partitions.hold(number, first.epoch(number).await).expect("it is open");
        assert!(!is_given_back().await, "the claim is on its way");
        let fence = first.claim().await[0].fence;
        let later = Instant::now() + LEASE;
        let mark = in_flight.mark_claimed(event, fence, later, Some(hold), later).await.expect("it is not marked");
        assert!(!is_given_back().await, "its listener is at work");

        if is_lost {
            in_flight.renewed(event, fence, None);
            assert!(is_given_back().await, "the event may be with another host already");
        } else {
            mark.settled();
            assert!(is_given_back().await);
        }
    }
}

#[tokio::test]
async fn where_one_host_works_alone_another_takes_over_when_it_has_left() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Whole), table.host(Share::Whole));
    assert!(first.keep(1).await && first.partitions.is_whole());

    assert!(!second.keep(2).await && second.partitions.open().all.is_empty(), "it stands by");
    first.keep(2).await;
    assert!(first.partitions.is_whole(), "and takes nothing away");

    first.leave().await;
    assert!(second.keep(1).await && second.partitions.is_whole());
    assert!(second.partitions.open().careful.is_empty());
    first.keep(1).await;
    assert!(first.partitions.open().all.is_empty(), "late beats of one that has left take nothing");
}

#[tokio::test]
async fn a_host_that_leaves_with_something_in_hand_keeps_that_partition_until_its_lease_ends() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Even), table.host(Share::Even));
    first.keep(1).await;
    let _hold = first.partitions.hold(7, first.epoch(7).await).expect("it is open");

    first.leave().await;

    assert!(second.keep(1).await);
    assert_eq!(second.partitions.open().all.len(), usize::from(PARTITIONS) - 1);
    table.clock.advance(LEASE);
    second.keep(1).await;
    assert!(second.partitions.is_whole());
    assert_eq!(second.partitions.open().careful.numbers(), [7], "its owner did not give it back");
}

#[tokio::test]
async fn what_an_owner_left_is_claimed_carefully_until_it_cannot_have_had_more_in_hand() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Whole), table.host(Share::Whole));
    first.keep(1).await;
    table.clock.advance(LEASE);

    assert!(second.keep(1).await && second.partitions.is_whole());

    let all: Vec<u16> = (0..PARTITIONS).collect();
    assert_eq!(
        second.partitions.open().careful.numbers(),
        all,
        "the first of them, too, which is taken by a statement of its own"
    );
    second.partitions.note_careful_read(&second.partitions.open().careful, claimed(60, Reached::Event(FURTHER)));
    second.keep(1).await;
    assert_eq!(second.partitions.open().careful.numbers(), all, "a beat changes nothing");
    second.partitions.note_careful_read(&second.partitions.open().careful, claimed(40, Reached::Event(FURTHER)));
    assert!(second.partitions.open().careful.is_empty(), "as many as it can have had in hand");
}

#[tokio::test]
async fn partitions_that_were_empty_once_are_as_the_others() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Even), table.host(Share::Even));
    first.keep(1).await;
    table.clock.advance(LEASE);
    second.keep(1).await;
    second.partitions.note_careful_read(&second.partitions.open().careful, claimed(1, Reached::End));
    assert!(second.partitions.open().careful.is_empty());
}

#[tokio::test]
async fn what_is_held_under_a_lease_that_ended_is_held_still_unless_another_has_taken_it() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Even), table.host(Share::Even));
    first.keep(1).await;
    let epoch = first.epoch(3).await;
    let hold = first.partitions.hold(3, epoch).expect("it is open");
    table.clock.advance(LEASE);
    assert!(!first.keep(1).await, "nobody else was there");
    assert!(hold.lease_end().is_some() && first.partitions.hold(3, epoch).is_some());

    table.clock.advance(LEASE);
    second.keep(1).await;
    first.keep(1).await;

    assert!(hold.lease_end().is_none() && first.partitions.hold(3, epoch).is_none());
    assert_eq!(first.partitions.is_held(3, epoch), Some(false));
}

#[tokio::test]
async fn a_host_takes_its_lease_to_end_before_the_database_does() {
    let table = Table::new().await;
    let host = table.host(Share::Even);
    assert!(host.partitions.lease_end() <= Instant::now(), "it holds nothing yet");
    assert!(host.partitions.hold(0, 0).is_none(), "nor can anything be held");
    host.keep(1).await;
    assert!(host.partitions.lease_end() < Instant::now() + LEASE - LEASE / lease::MARGIN_DIVISOR);
    assert_eq!(host.partitions.is_held(0, host.epoch(0).await), Some(true));
}

#[tokio::test]
async fn a_host_that_stops_gives_back_what_is_free_and_takes_nothing() {
    let table = Table::new().await;
    let (first, second) = (table.host(Share::Even), table.host(Share::Even));
    first.keep(1).await;
    let hold = first.partitions.hold(7, first.epoch(7).await).expect("it is open");

    first.partitions.close();
    first.keep(1).await;

    assert!(first.partitions.open().all.is_empty() && hold.is_leaving());
    second.keep(1).await;
    assert_eq!(second.partitions.open().all.len(), usize::from(PARTITIONS) - 1);
    drop(hold);
    first.keep(1).await;
    second.keep(1).await;
    assert!(second.partitions.is_whole());
    second.leave().await;
    first.keep(1).await;
    assert!(first.partitions.open().all.is_empty(), "what becomes free is not taken");
}

#[tokio::test]
async fn what_could_not_be_given_back_is_held_under_its_epoch_still() {
    let table = Table::new().await;
    let host = table.host(Share::Even);
    host.keep(1).await;
    let epoch = host.epoch(7).await;
    table
        .execute("CREATE TRIGGER no BEFORE UPDATE ON outbox_event_partition WHEN NEW.owner IS NULL BEGIN SELECT RAISE(ABORT, 'no'); END")
        .await;

    host.partitions.close();
    let kept = host.try_keep(1).await;

    kept.expect_err("the database gives nothing back");
    assert_eq!(host.partitions.is_held(7, epoch), Some(true), "what was let go of it without an outcome is claimed");
    assert!(host.partitions.hold(7, epoch).is_none(), "though nothing more of it begins");
    table.execute("DROP TRIGGER no").await;
    host.keep(1).await;
    assert_eq!(host.partitions.is_held(7, epoch), Some(false));
}

#[tokio::test]
async fn what_the_database_may_give_back_late_is_not_worked_on_again_before_it_has() {
    let table = Table::new().await;
    let host = table.host(Share::Even);
    host.keep(1).await;
    table
        .execute("CREATE TRIGGER no BEFORE UPDATE ON outbox_event_partition WHEN NEW.owner IS NULL BEGIN SELECT RAISE(ABORT, 'no'); END")
        .await;
    let kept = host.try_keep(2).await;
    kept.expect_err("nobody knows whether they are given back");
    table.execute("DROP TRIGGER no").await;

    // The other host is gone: all are its share again.
    host.keep(1).await;
    assert_eq!(host.partitions.open().all.len(), usize::from(PARTITIONS) / 2);
    host.keep(1).await;

    assert!(host.partitions.is_whole());
    let first = host.epoch(0).await;
    assert_eq!((first, host.epoch(PARTITIONS - 1).await), (1, 2), "what was given back is held under a new epoch");
}

#[tokio::test]
async fn partitions_whose_taking_nobody_told_of_are_claimed_carefully() {
    let table = Table::new().await;
    let host = table.host(Share::Even);
    // The answer is lost after the statement has ended.
    host.beat().await;
    table.store.keep_partitions(&host.owner, PARTITIONS, PARTITIONS).await.expect("takes");
    host.partitions.is_unsure.store(true, Ordering::SeqCst);

    host.keep(1).await;
    assert_eq!(host.partitions.open().careful.numbers().len(), usize::from(PARTITIONS));
    host.partitions.note_careful_read(&host.partitions.open().careful, claimed(0, Reached::End));
    host.keep(1).await;
    assert!(host.partitions.open().careful.is_empty(), "told of now");
}

#[tokio::test]
async fn where_order_is_kept_calls_end_before_others_can_have_seen_the_lock_free_for_long_enough() {
    let table = Table::new().await;
    let mut host = table.host(Share::Even);
    host.partitions = Arc::new(Partitions::new(Share::Even, true, 100));
    host.keep(1).await;
    let hold = host.partitions.hold(3, host.epoch(3).await).expect("it is open");
    let ends_in = || hold.lease_end().expect("it is held").saturating_duration_since(Instant::now());
    assert!(ends_in() > LEASE / 2, "nobody relies on a session");

    host.partitions.set_session(Some(Instant::now()));
    assert!(host.partitions.session().begin_announcing());
    host.partitions.session().set_announced(true);

    host.keep(1).await;
    assert!(ends_in() < GONE_AFTER && ends_in() > Duration::ZERO);
    let end = hold.lease_end();
    host.partitions.set_session(None);
    assert_eq!(hold.lease_end(), end, "the lock was held until just now");
    host.partitions.set_session(Some(Instant::now()));
    assert_eq!(hold.lease_end(), end, "others may have taken everything meanwhile");
    host.keep(1).await;
    assert!(hold.lease_end() > end);
    host.partitions.session().set_announced(false);
    assert!(ends_in() > LEASE / 2);
}

#[tokio::test]
async fn calls_begin_as_long_as_others_are_told_of_no_session_or_it_was_proven_just_now() {
    let table = Table::new().await;
    let host = table.host(Share::Even);
    let partitions = &host.partitions;
    assert!(
        partitions.session().may_begin() && !partitions.session().begin_announcing(),
        "no session yet, and no other host relies on one"
    );

    partitions.set_session(Some(Instant::now()));
    assert!(
        partitions.session().begin_announcing() && partitions.session().may_begin(),
        "no other host has relied on a session before"
    );
    partitions.session().set_announced(true);
    partitions.set_session(None);
    assert!(!partitions.session().may_begin(), "others may rely on it still");
    partitions.set_session(Some(Instant::now()));
    assert!(!partitions.session().may_begin(), "others may have taken everything meanwhile");
    host.keep(1).await;
    assert!(partitions.session().may_begin());
    partitions.set_session(None);
    assert!(!partitions.session().begin_announcing() && !partitions.session().may_begin(), "until they are told");
    partitions.session().set_announced(false);
    assert!(partitions.session().may_begin());
}

#[test]
fn claims_that_end_with_the_lease_are_not_renewed_while_the_host_can_deliver_nothing() {
    let partitions = Partitions::new(Share::Even, false, 100);
    partitions.set_aside(true, false, true);
    assert!(!partitions.lets_claims_end(), "its events in flight may end first");
    partitions.set_aside(true, true, true);
    assert!(partitions.lets_claims_end());

    partitions.set_aside(true, false, true);
    assert!(!partitions.lets_lease_end(), "another rest has begun");
    assert!(partitions.lets_claims_end());
    partitions.set_aside(false, false, true);
    assert!(!partitions.lets_claims_end());
}

#[test]
fn claims_are_renewed_again_once_a_host_that_stands_aside_has_recovered() {
    let partitions = Partitions::new(Share::Even, false, 100);
    partitions.set_aside(true, true, true);
    assert!(partitions.lets_claims_end());

    partitions.set_aside(true, false, false);
    assert!(!partitions.lets_claims_end(), "it can read and store");
    partitions.set_aside(true, false, true);
    assert!(!partitions.lets_claims_end(), "another stall begins with a new wait");
}
