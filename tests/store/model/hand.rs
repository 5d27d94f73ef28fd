//! What people do by hand, and what is tidied up.

use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::{Audit, AuditFilter, DeadFilter, PurgeBatch, Purgeable, Record};
use outbox::time::Timestamp;
use outbox::{EventId, Route, Status};
use serde_json::json;

use super::table::{Fault, Note, Table, route};

impl Table {
    fn dead(&mut self, id: EventId) -> Option<&mut Record> {
        self.rows.values_mut().find(|row| row.event_id == id && row.status == Status::Dead)
    }

    /// Notes what was done; nothing when nothing was.
    pub(super) fn note(&mut self, audit: &Audit, action: &'static str, selector: serde_json::Value, count: u64) -> u64 {
        assert!(AuditFilter::ACTIONS.contains(&action), "nobody could ask for {action}");
        if count > 0 {
            self.notes.push(Note { audit: audit.clone(), action, selector, count });
        }
        count
    }

    /// Sets a dead event back to NEW. Its fence goes on, and its last error stays readable.
    pub(super) fn replay(&mut self, id: EventId, audit: &Audit) -> bool {
        let now = self.now;
        let Some(row) = self.dead(id) else { return false };
        row.status = Status::New;
        (row.attempts, row.deferrals, row.claims, row.starts) = (0, 0, 0, 0);
        row.replays += 1;
        row.claim_seq += 1;
        row.done_at = None;
        row.due_at = Some(now);
        row.expires_at = None;
        row.blocks = false;
        self.note(audit, "replay", json!({ "event_id": id }), 1) == 1
    }

    /// Dead events that match, oldest first.
    fn matching(&self, filter: &DeadFilter) -> Vec<EventId> {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|wanted| found == Some(wanted));
        let matches = |row: &&Record| {
            row.status == Status::Dead
                && is(&filter.event_type, Some(&row.event_type))
                && is(&filter.aggregate_type, Some(&row.aggregate_type))
                && is(&filter.aggregate_id, row.aggregate_id.as_deref())
                && is(&filter.tenant_id, row.tenant_id.as_deref())
                && filter.error.as_ref().is_none_or(|part| row.last_error.as_ref().is_some_and(|error| error.contains(part)))
                && filter.max_attempts.is_none_or(|most| row.attempts <= most)
                && filter.dead_after.is_none_or(|time| row.done_at >= Some(time))
                && filter.dead_before.is_none_or(|time| row.done_at <= Some(time))
        };
        self.rows.values().filter(matches).map(|row| row.event_id).collect()
    }

    pub(super) fn count_dead(&self, filter: &DeadFilter) -> u64 {
        self.matching(filter).len() as u64
    }

    /// Replays the oldest that match. One note for all: `shown` is the filter as the database was given it.
    pub(super) fn replay_batch(&mut self, filter: &DeadFilter, shown: &DeadFilter, limit: u32, audit: &Audit) -> u64 {
        let chosen: Vec<EventId> = self.matching(filter).into_iter().take(limit as usize).collect();
        let notes = self.notes.len();
        for id in &chosen {
            self.replay(*id, audit);
        }
        self.notes.truncate(notes);
        self.note(audit, "replay", json!(shown), chosen.len() as u64)
    }

    /// The events that wait for another attempt, oldest first: those that failed, and those that their listener put off.
    fn waiting(&self, max_attempts: Option<u32>) -> Vec<u64> {
        let waits = |row: &&Record| {
            (row.status == Status::Retry || row.status == Status::New && row.deferrals > 0)
                && row.due_at.is_some_and(|due_at| due_at > self.now)
                && row.locked_by.is_none()
                && max_attempts.is_none_or(|most| row.attempts <= most)
        };
        self.rows.values().filter(waits).map(|row| row.seq).collect()
    }

    pub(super) fn count_waiting(&self, max_attempts: Option<u32>) -> u64 {
        self.waiting(max_attempts).len() as u64
    }

    /// Lets events that wait for another attempt be due now, oldest first. Returns how many, and the `seq` of the last of them.
    pub(super) fn retry_now(&mut self, max_attempts: Option<u32>, after: u64, limit: u32, audit: &Audit) -> (u64, Option<u64>) {
        let mut waiting = self.waiting(max_attempts);
        waiting.retain(|seq| *seq > after);
        waiting.truncate(limit as usize);
        for seq in &waiting {
            self.rows.get_mut(seq).expect("it waits").due_at = Some(self.now);
        }
        let count = self.note(audit, "retry_now", json!({ "max_attempts": max_attempts }), waiting.len() as u64);
        (count, waiting.last().copied())
    }

    /// Deletes a dead event.
    pub(super) fn discard(&mut self, id: EventId, audit: &Audit) -> bool {
        let Some(seq) = self.dead(id).map(|row| row.seq) else { return false };
        self.rows.remove(&seq);
        self.note(audit, "discard", json!({ "event_id": id }), 1) == 1
    }

    /// Lets a dead event block its aggregate no longer.
    pub(super) fn skip(&mut self, id: EventId, audit: &Audit) -> bool {
        let Some(row) = self.dead(id).filter(|row| row.blocks) else { return false };
        row.blocks = false;
        self.note(audit, "skip", json!({ "event_id": id }), 1) == 1
    }

    pub(super) fn pause(&mut self, route: &Route, audit: &Audit) -> bool {
        if self.paused.contains_key(route) {
            return false;
        }
        self.paused.insert(route.clone(), audit.clone());
        self.note(audit, "pause", json!(route), 1) == 1
    }

    pub(super) fn resume(&mut self, route: &Route, audit: &Audit) -> bool {
        self.paused.remove(route).is_some() && self.note(audit, "resume", json!(route), 1) == 1
    }

    /// Parked events of these routes, of these partitions or of all.
    pub(super) fn parked(&self, routes: &[Route], partitions: Option<&[u16]>) -> Vec<u64> {
        let parked = self.rows.values().filter(|row| row.parked.is_some() && routes.contains(&route(row)));
        let of_them = |row: &&Record| partitions.is_none_or(|partitions| partitions.contains(&self.partition(row)));
        parked.filter(of_them).map(|row| row.seq).collect()
    }

    /// Lets parked events of these routes go, each under a claim that has ended. Which of them, when there are more than
    /// `limit`, is the database's business: as many as it said, of those that it could choose from.
    pub(super) fn unpark(
        &mut self,
        owner: &OwnerId,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: u32,
        freed: &[u64],
    ) -> Result<(), Fault> {
        let parked = self.parked(routes, partitions);
        let count = parked.len().min(limit as usize);
        if freed.len() != count || freed.iter().any(|seq| !parked.contains(seq)) {
            return Err(format!("{freed:?} were unparked, of {parked:?} at most {limit}"));
        }
        for seq in freed {
            let row = self.rows.get_mut(seq).expect("it is parked");
            row.parked = None;
            row.due_at = Some(row.available_at);
            row.locked_by = Some(owner.as_str().to_owned());
            (row.locked_at, row.lease_end) = (Some(self.now), Some(self.now));
        }
        Ok(())
    }

    /// What is old enough to be purged, with the times of the ends: what others wait behind, or the rest.
    fn old_enough(&self, status: Status, finished_before: Timestamp, blocking: bool) -> Vec<(u64, Timestamp)> {
        let finished = self.rows.values().filter(|row| row.status == status && row.blocks == blocking);
        finished.filter_map(|row| Some((row.seq, row.done_at.filter(|done_at| *done_at <= finished_before)?))).collect()
    }

    pub(super) fn count_purgeable(&self, status: Status, finished_before: Timestamp) -> Purgeable {
        let count = |blocking| self.old_enough(status, finished_before, blocking).len() as u64;
        Purgeable { count: count(false), blocking: count(true) }
    }

    /// Deletes rows that have been due for this long and that no host ever took, those that were due first at first.
    pub(super) fn purge_undelivered(&mut self, older_than: Duration, limit: u32) -> PurgeBatch {
        let oldest = self.now.minus(older_than);
        let delivered_by_nobody = self.nodes.values().all(|node| node.alive_until <= self.now);
        let never_taken =
            |row: &&Record| delivered_by_nobody && row.status == Status::New && row.claim_seq == 0 && row.created_at <= oldest;
        let due = self.rows.values().filter(never_taken).filter_map(|row| Some((row.due_at?, row.seq)));
        let mut chosen: Vec<(Timestamp, u64)> = due.filter(|(due_at, _)| *due_at <= oldest).collect();
        chosen.sort_unstable();
        chosen.truncate(limit as usize);
        for (_, seq) in &chosen {
            self.rows.remove(seq);
        }
        PurgeBatch::of(&chosen.iter().map(|(due_at, _)| *due_at).collect::<Vec<_>>())
    }

    /// Deletes finished rows, oldest first. Which of those that finished at the same time is the database's business.
    pub(super) fn purge(
        &mut self,
        status: Status,
        finished_before: Timestamp,
        limit: u32,
        gone: &[u64],
    ) -> Result<PurgeBatch, Fault> {
        let purgeable = self.old_enough(status, finished_before, false);
        let (purged, left): (Vec<_>, Vec<_>) = purgeable.iter().partition(|(seq, _)| gone.contains(seq));
        let count = purgeable.len().min(limit as usize);
        let last = purged.iter().map(|(_, done_at)| *done_at).max();
        let oldest_left = left.iter().map(|(_, done_at)| *done_at).min();
        if gone.len() != count || purged.len() != count || oldest_left.zip(last).is_some_and(|(left, last)| left < last) {
            return Err(format!("{gone:?} were purged, of {purgeable:?} at most {}, oldest first", limit));
        }
        self.rows.retain(|seq, _| !gone.contains(seq));
        Ok(PurgeBatch::of(&purged.iter().map(|(_, done_at)| *done_at).collect::<Vec<_>>()))
    }
}
