//! What must never be, whatever the table says: judged by the answers and the rows of the database alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use outbox::Status;
use outbox::event::Fence;
use outbox::store::{HeldPartition, Record};
use outbox::time::Timestamp;

use super::compare::Times;
use super::table::Fault;

/// The part of a fence that is the row's own: `claim_seq`.
const LOWER: u64 = 0xffff_ffff;

/// Everything of a trace that must not come twice or go back.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The rows after the step before.
    rows: BTreeMap<u64, Row>,
    /// The numbers of rows that were deleted.
    gone: HashSet<u64>,
    /// The greatest number under which each event was given out.
    given_out: HashMap<u64, u64>,
    /// The deliveries that have their outcome: `seq` and `claim_seq`.
    outcomes: HashSet<(u64, u64)>,
    /// Who was told to hold a row, and until when.
    claims: HashMap<u64, (String, Timestamp)>,
    partitions: HashMap<u16, Partition>,
    /// Until when each host is alive.
    alive: HashMap<String, Timestamp>,
    /// Outcomes of this step: their fences, and how many the database said that it stored.
    settled: Option<(Vec<Fence>, u64)>,
}

/// What is kept of a row.
#[derive(Clone, Copy, Debug)]
struct Row {
    status: Status,
    claim_seq: u64,
}

/// A partition as its owners were told.
#[derive(Debug)]
struct Partition {
    owner: Option<String>,
    epoch: u32,
}

impl Watch {
    /// Rows were claimed.
    pub(super) fn claimed(&mut self, now: Timestamp, owner: &str, lease: Duration, fences: &[Fence]) -> Result<(), Fault> {
        for Fence { sequence, claim } in fences {
            self.is_free(now, *sequence)?;
            if self.given_out.insert(*sequence, *claim).is_some_and(|before| before >= *claim) {
                return Err(format!("row {sequence} was claimed under {claim}, which is not above the delivery before"));
            }
            self.claims.insert(*sequence, (owner.to_owned(), now.plus(lease)));
        }
        Ok(())
    }

    /// A row of this partition was read.
    pub(super) fn read(&mut self, now: Timestamp, owner: &str, partition: u16, fence: Fence) -> Result<(), Fault> {
        self.is_free(now, fence.sequence)?;
        let is_owners = |held: &Partition| held.owner.as_deref() == Some(owner);
        if !self.is_alive(now, owner) || !self.partitions.get(&partition).is_some_and(is_owners) {
            return Err(format!("{owner} read row {} of partition {partition}, which it does not hold", fence.sequence));
        }
        let before = self.given_out.entry(fence.sequence).or_default();
        if *before > fence.claim {
            return Err(format!("row {} was read under {}, which is below the delivery before", fence.sequence, fence.claim));
        }
        *before = fence.claim;
        Ok(())
    }

    fn is_free(&self, now: Timestamp, sequence: u64) -> Result<(), Fault> {
        match self.claims.get(&sequence) {
            Some((holder, until)) if *until > now => Err(format!("row {sequence} was given out while {holder} holds it")),
            _ => Ok(()),
        }
    }

    /// Claims of these rows hold for this long from now.
    pub(super) fn renewed(&mut self, now: Timestamp, lease: Duration, rows: &[u64]) {
        for row in rows {
            if let Some((_, until)) = self.claims.get_mut(row) {
                *until = now.plus(lease);
            }
        }
    }

    /// The database said that it stored this many of the outcomes under these fences.
    pub(super) fn settled(&mut self, fences: Vec<Fence>, stored: u64) {
        self.settled = Some((fences, stored));
    }

    /// An outcome was stored.
    pub(super) fn stored(&mut self, fence: Fence) -> Result<(), Fault> {
        self.outcome((fence.sequence, fence.claim & LOWER))
    }

    fn outcome(&mut self, delivery: (u64, u64)) -> Result<(), Fault> {
        self.claims.remove(&delivery.0);
        if self.outcomes.insert(delivery) {
            return Ok(());
        }
        Err(format!("row {} has two outcomes under the number {}", delivery.0, delivery.1))
    }

    /// A host wrote a heartbeat.
    pub(super) fn alive(&mut self, now: Timestamp, owner: &str, lease: Duration) {
        self.alive.insert(owner.to_owned(), now.plus(lease));
    }

    fn is_alive(&self, now: Timestamp, owner: &str) -> bool {
        self.alive.get(owner).is_some_and(|until| *until > now)
    }

    /// An owner has these partitions.
    pub(super) fn kept(&mut self, now: Timestamp, owner: &str, kept: &[HeldPartition]) -> Result<(), Fault> {
        for HeldPartition { number, epoch, .. } in kept {
            if let Some(before) = self.partitions.get(number) {
                let is_its_own = before.owner.as_deref() == Some(owner);
                if !is_its_own && before.owner.as_deref().is_some_and(|before| self.is_alive(now, before)) {
                    return Err(format!("{owner} got partition {number} while {:?} holds it", before.owner));
                }
                let is_right = if is_its_own { *epoch == before.epoch } else { *epoch > before.epoch };
                if !is_right {
                    return Err(format!("{owner} has partition {number} under epoch {epoch}, after {before:?}"));
                }
            }
            let partition = Partition { owner: Some(owner.to_owned()), epoch: *epoch };
            self.partitions.insert(*number, partition);
        }
        Ok(())
    }

    /// An owner gave these partitions back, as far as it held them.
    pub(super) fn released(&mut self, owner: &str, partitions: &[HeldPartition]) {
        for given in partitions {
            if let Some(partition) = self.its_own(owner, given) {
                partition.owner = None;
            }
        }
    }

    /// An owner gave all of its partitions back.
    pub(super) fn left(&mut self, owner: &str) {
        for partition in self.partitions.values_mut().filter(|held| held.owner.as_deref() == Some(owner)) {
            partition.owner = None;
        }
        self.alive.remove(owner);
    }

    /// The partition, if the owner still has it under this epoch.
    fn its_own(&mut self, owner: &str, given: &HeldPartition) -> Option<&mut Partition> {
        let partition = self.partitions.get_mut(&given.number)?;
        (partition.owner.as_deref() == Some(owner) && partition.epoch == given.epoch).then_some(partition)
    }

    /// The lease of an owner was ended.
    pub(super) fn abandoned(&mut self, now: Timestamp, owner: &str, holds_its_lock: bool) -> Result<(), Fault> {
        if holds_its_lock {
            return Err(format!("{owner} was abandoned, though its session lives"));
        }
        self.alive.insert(owner.to_owned(), now);
        Ok(())
    }

    /// All rows after a step, whose times were moved back. Only a replay brings finished events back.
    pub(super) fn after(&mut self, now: Timestamp, is_replay: bool, rows: &[Record], times: Times) -> Result<(), Fault> {
        let found: BTreeMap<u64, Row> = rows.iter().map(|row| (row.seq, Row::from(row))).collect();
        self.agree_outcomes(&found)?;
        for record in rows {
            let (seq, row) = (record.seq, Row::from(record));
            match self.rows.get(&seq) {
                None if self.gone.contains(&seq) => return Err(format!("row {seq} was deleted, and is there again")),
                None => {}
                Some(before) if before.claim_seq > row.claim_seq => {
                    return Err(format!("the number of deliveries of row {seq} went back: {before:?}, {row:?}"));
                }
                Some(before) if before.is_finished() && before.status != row.status && !before.is_replayed(row, is_replay) => {
                    return Err(format!("row {seq} was finished, and came back: {before:?}, {row:?}"));
                }
                Some(_) => {}
            }
            self.agree_claim(now, record, times)?;
        }
        self.gone.extend(self.rows.keys().filter(|seq| !found.contains_key(seq)));
        self.rows = found;
        Ok(())
    }

    /// What the database said of the outcomes of this step shows in its rows.
    fn agree_outcomes(&mut self, found: &BTreeMap<u64, Row>) -> Result<(), Fault> {
        let Some((fences, stored)) = self.settled.take() else { return Ok(()) };
        let was_under = |(seq, claim): &(u64, u64)| self.rows.get(seq).is_some_and(|row| row.claim_seq == *claim);
        let has_changed = |(seq, claim): &(u64, u64)| found.get(seq).is_none_or(|row| row.claim_seq != *claim);
        let deliveries: BTreeSet<(u64, u64)> = fences.iter().map(|fence| (fence.sequence, fence.claim & LOWER)).collect();
        let changed: Vec<(u64, u64)> = deliveries.into_iter().filter(was_under).filter(has_changed).collect();
        if changed.len() as u64 != stored {
            return Err(format!("{stored} outcomes were stored, and these rows changed: {changed:?}"));
        }
        changed.into_iter().try_for_each(|delivery| self.outcome(delivery))
    }

    /// A row is held by whoever was told so, and by nobody else.
    fn agree_claim(&mut self, now: Timestamp, row: &Record, times: Times) -> Result<(), Fault> {
        let (Some(holder), Some(lease_end)) = (&row.locked_by, row.lease_end) else {
            self.claims.remove(&row.seq);
            return Ok(());
        };
        // A lease is whole hours, and the database's clock may be ahead by less.
        let until = lease_end.plus(times.passed).minus(times.slack);
        match self.claims.get(&row.seq) {
            Some((other, others)) if other != holder && *others > now && until > now => {
                Err(format!("row {} is held by {holder} and by {other}", row.seq))
            }
            Some(_) => Ok(()),
            None => {
                // It came with its insert.
                self.claims.insert(row.seq, (holder.clone(), until));
                Ok(())
            }
        }
    }
}

impl Row {
    fn from(row: &Record) -> Self {
        Self { status: row.status, claim_seq: row.claim_seq }
    }

    /// Whether it may have become this by a replay, if there was one.
    fn is_replayed(self, after: Self, is_replay: bool) -> bool {
        is_replay && self.status == Status::Dead && after.status == Status::New
    }

    fn is_finished(self) -> bool {
        matches!(self.status, Status::Done | Status::Dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const TIMES: Times = Times { passed: Duration::ZERO, slack: Duration::ZERO };

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn fence(epoch: u32, claim: u64) -> Fence {
        Fence::new(1, epoch, claim)
    }

    fn kept(epoch: u32) -> [HeldPartition; 1] {
        [HeldPartition { number: 7, epoch, abandoned: false }]
    }

    fn record(claim_seq: u64, status: Status) -> Record {
        let envelope = outbox::Envelope::new("Placed").json(&1).unwrap();
        let mut record = Record::inserted(1, &envelope, start());
        (record.claim_seq, record.status) = (claim_seq, status);
        record
    }

    /// Sees row 1 as it is when it was inserted.
    fn watch() -> Watch {
        let mut watch = Watch::default();
        watch.after(start(), false, &[record(0, Status::New)], TIMES).unwrap();
        watch
    }

    #[test]
    fn a_row_that_is_held_is_given_to_nobody_until_the_lease_is_over_or_it_has_an_outcome() {
        let mut watch = watch();
        watch.claimed(start(), "a", HOUR, &[fence(0, 1)]).unwrap();

        assert!(watch.claimed(start(), "b", HOUR, &[fence(0, 2)]).is_err());
        watch.renewed(start().plus(HOUR / 2), HOUR, &[1]);
        assert!(watch.claimed(start().plus(HOUR), "b", HOUR, &[fence(0, 2)]).is_err());
        watch.claimed(start().plus(2 * HOUR), "b", HOUR, &[fence(0, 2)]).unwrap();
        watch.stored(fence(0, 2)).unwrap();
        watch.claimed(start().plus(2 * HOUR), "a", HOUR, &[fence(0, 4)]).unwrap();
    }

    #[test]
    fn a_claim_has_a_number_of_its_own_and_a_read_may_come_again() {
        let mut watch = watch();
        watch.alive(start(), "a", HOUR);
        watch.kept(start(), "a", &kept(1)).unwrap();

        watch.read(start(), "a", 7, fence(1, 0)).unwrap();
        watch.read(start(), "a", 7, fence(1, 0)).unwrap();
        assert!(watch.claimed(start(), "a", Duration::ZERO, &[fence(1, 0)]).is_err());
        watch.claimed(start(), "a", Duration::ZERO, &[fence(1, 1)]).unwrap();
        assert!(watch.read(start(), "a", 7, fence(1, 0)).is_err(), "the number went back");
        assert!(watch.read(start(), "a", 8, fence(1, 1)).is_err(), "not its partition");
        assert!(watch.read(start().plus(HOUR), "a", 7, fence(1, 1)).is_err(), "the lease is over");
    }

    #[test]
    fn a_partition_has_one_owner_and_a_new_epoch_for_each() {
        let mut watch = Watch::default();
        let later = start().plus(HOUR);
        watch.alive(start(), "a", HOUR);
        watch.kept(start(), "a", &kept(1)).unwrap();

        assert!(watch.kept(start(), "b", &kept(2)).is_err(), "its owner is alive");
        assert!(watch.kept(later, "b", &kept(1)).is_err(), "the epoch is not new");
        watch.alive(later, "b", HOUR);
        watch.kept(later, "b", &kept(2)).unwrap();
        assert!(watch.kept(later, "b", &kept(3)).is_err(), "it had it already");
        watch.released("b", &kept(1));
        assert!(watch.kept(later, "a", &kept(3)).is_err(), "it was given back under an earlier epoch");
        watch.released("b", &kept(2));
        watch.alive(later, "a", HOUR);
        watch.kept(later, "a", &kept(3)).unwrap();
        assert!(watch.abandoned(later, "a", true).is_err());
        watch.abandoned(later, "a", false).unwrap();
        watch.kept(later, "b", &kept(4)).unwrap();
    }

    #[test]
    fn a_delivery_has_one_outcome_and_what_is_said_of_it_shows_in_the_rows() {
        let settled = |said, record| {
            let mut watch = watch();
            watch.settled(vec![fence(1, 0)], said);
            let after = watch.after(start(), false, &[record], TIMES);
            (watch, after)
        };
        let (mut watch, after) = settled(1, record(1, Status::Done));
        after.unwrap();
        assert!(watch.stored(fence(2, 0)).is_err(), "under another epoch it is the same delivery");

        assert!(settled(0, record(1, Status::Done)).1.is_err(), "a dropped outcome changed its row");
        assert!(settled(1, record(0, Status::New)).1.is_err(), "a stored outcome changed nothing");
    }

    #[test]
    fn what_is_finished_comes_back_by_a_replay_alone_and_what_is_deleted_never() {
        let back = |before, replay, after| {
            let mut watch = watch();
            watch.after(start(), false, &[record(1, before)], TIMES).unwrap();
            watch.after(start(), replay, &[record(1, after)], TIMES)
        };
        back(Status::Dead, true, Status::New).unwrap();
        assert!(back(Status::Dead, false, Status::New).is_err());
        assert!(back(Status::Done, true, Status::New).is_err());

        let mut watch = watch();
        assert!(watch.after(start(), false, &[], TIMES).is_ok());
        assert!(watch.after(start(), false, &[record(0, Status::New)], TIMES).is_err());
        let mut watch = self::watch();
        watch.after(start(), false, &[record(2, Status::Retry)], TIMES).unwrap();
        assert!(watch.after(start(), false, &[record(1, Status::Retry)], TIMES).is_err(), "the number went back");
    }

    #[test]
    fn a_row_is_held_by_whoever_was_told_so() {
        let held = |owner: &str| {
            let mut held = record(1, Status::New);
            (held.locked_by, held.lease_end) = (Some(owner.to_owned()), Some(start().plus(HOUR)));
            held
        };
        let mut watch = watch();
        watch.claimed(start(), "a", HOUR, &[fence(0, 1)]).unwrap();
        watch.after(start(), false, &[held("a")], TIMES).unwrap();
        assert!(watch.after(start(), false, &[held("b")], TIMES).is_err());
    }
}
