//! What claiming, renewing, starting, giving back and settling do.

use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{Due, PARTITIONS, ReadOrder, ReadRequest, Record, Settled, Settlement, WaitsFor};
use outbox::time::Timestamp;
use outbox::{EventId, Status};

use super::table::{Table, is_unfinished, route};

/// An event that was claimed or read.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// Its row after that.
    pub(super) row: Record,
    pub(super) fence: Fence,
    pub(super) due: Due,
    pub(super) behind: Option<u64>,
}

/// The longest delay that is kept.
const LONGEST: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);
/// The part of a fence that is the row's own: `claim_seq`.
const LOWER: u64 = 0xffff_ffff;
/// The longest error that is kept, in characters.
const LONGEST_ERROR: usize = 4_000;

impl Table {
    /// The events that may be claimed and have been due longest, without the epochs of their partitions.
    pub(super) fn due(&self, limit: usize) -> Vec<Fence> {
        let mut due: Vec<&Record> = self.rows.values().filter(|row| self.is_free(row, Duration::ZERO)).collect();
        due.sort_by_key(|row| (row.due_at, row.seq));
        due.into_iter().take(limit).map(|row| Fence::new(row.seq, 0, row.claim_seq)).collect()
    }

    /// The first unfinished events whose time has come, past those in hand, up to one that cannot be taken.
    fn front(&self, held: &[u64], skip_recent: Duration, limit: u32) -> Vec<&Record> {
        let has_come = |row: &&Record| row.available_at <= self.now || row.due_at.is_some_and(|due_at| due_at <= self.now);
        let queue = self.rows.values().filter(|row| is_unfinished(row)).filter(has_come);
        let waiting = queue.filter(|row| !held.contains(&row.seq));
        waiting.take_while(|row| self.is_free(row, skip_recent)).take(limit as usize).collect()
    }

    /// Whether it is due and nobody holds it.
    fn is_free(&self, row: &Record, skip_recent: Duration) -> bool {
        row.due_at.is_some_and(|due_at| due_at <= self.now)
            && row.lease_end.is_none_or(|lease_end| lease_end <= self.now)
            && row.created_at <= self.now.minus(skip_recent)
    }

    /// Of the earlier events of its aggregate that it waits for, the last that is not queued; the last where all are.
    fn behind_its_aggregate(&self, seq: u64, waits_for: WaitsFor, queued: &[u64]) -> Option<u64> {
        let earlier = self.waited_for(seq, waits_for);
        earlier.iter().rfind(|earlier| !queued.contains(earlier)).or(earlier.last()).copied()
    }

    /// The last of all earlier events that are waited for.
    fn behind_the_front(&self, seq: u64) -> Option<u64> {
        let earlier = self.rows.range(..seq).map(|(_, row)| row);
        earlier.filter(|row| is_unfinished(row) && row.available_at <= self.now).map(|row| row.seq).next_back()
    }

    fn take(&mut self, seq: u64, owner: &OwnerId, lease: Duration) -> Taken {
        let now = self.now;
        let row = self.rows.get_mut(&seq).expect("it was chosen");
        row.locked_by = Some(owner.as_str().to_owned());
        row.locked_at = Some(now);
        row.lease_end = Some(now.plus(lease));
        row.claim_seq += 1;
        row.claims += 1;
        let row = &self.rows[&seq];
        Taken { row: row.clone(), fence: self.fence(row), due: self.is_time(row), behind: None }
    }

    /// Whether it is really time.
    fn is_time(&self, row: &Record) -> Due {
        if row.expires_at.is_some_and(|expires_at| expires_at <= self.now) {
            Due::Expired
        } else if row.available_at > self.now {
            Due::In(row.available_at.since(self.now))
        } else {
            Due::Since(self.now.since(row.available_at))
        }
    }

    /// The epoch of the row's partition.
    pub(super) fn epoch(&self, row: &Record) -> u32 {
        self.epochs[usize::from(self.partition(row))]
    }

    /// What names a delivery of the row as it is now.
    pub(super) fn fence(&self, row: &Record) -> Fence {
        Fence::new(row.seq, self.epoch(row), row.claim_seq)
    }

    /// The row that was claimed under a fence, and is not finished. Whose claim it is and whether its lease is over changes
    /// nothing, as long as nobody else has claimed the row.
    pub(super) fn claimed(&mut self, fence: Fence) -> Option<&mut Record> {
        let row = self.rows.get_mut(&fence.sequence)?;
        (row.claim_seq == fence.claim & LOWER && row.locked_by.is_some() && is_unfinished(row)).then_some(row)
    }

    /// The row that an outcome may be written for: claimed under its fence, or read while its partition had this epoch.
    pub(super) fn held(&mut self, fence: Fence) -> Option<&mut Record> {
        let row = self.rows.get(&fence.sequence)?;
        let was_read = row.locked_by.is_none() && self.epoch(row) > 0 && u64::from(self.epoch(row)) == fence.claim >> 32;
        let is_held = row.claim_seq == fence.claim & LOWER && is_unfinished(row) && (was_read || row.locked_by.is_some());
        if is_held { self.rows.get_mut(&fence.sequence) } else { None }
    }

    /// Due events of partitions that the owner holds, none of those in hand, by the time since when they are due; or the front
    /// of the one queue, if it holds all.
    pub(super) fn read(&self, request: &ReadRequest) -> Vec<Taken> {
        let owner = request.owner.as_str();
        let mut chosen = match request.order {
            Some(ReadOrder::OneForAll) if !(0..PARTITIONS).all(|partition| self.holds(owner, partition)) => Vec::new(),
            Some(ReadOrder::OneForAll) => self.front(&request.held, request.skip_recent, request.limit),
            _ => self.due_to_read(request),
        };
        cut(&mut chosen, request.max_bytes);
        let read = |row: &Record| Taken {
            row: row.clone(),
            fence: self.fence(row),
            due: self.is_time(row),
            behind: request.order.as_ref().and_then(|order| match order {
                ReadOrder::ByAggregate { waits_for, queued } => self.behind_its_aggregate(row.seq, *waits_for, queued),
                ReadOrder::OneForAll => self.behind_the_front(row.seq),
            }),
        };
        chosen.into_iter().map(read).collect()
    }

    fn due_to_read(&self, request: &ReadRequest) -> Vec<&Record> {
        let is_ours = |row: &Record| {
            let partition = self.partition(row);
            request.partitions.contains(&partition) && self.holds(request.owner.as_str(), partition)
        };
        let is_behind =
            |row: &Record| request.after.is_none_or(|after| (row.due_at, row.seq) > (Some(after.due_at), after.sequence));
        let is_busy = |row: &Record| request.order.is_none() && request.busy.contains(&route(row));
        let is_wanted = |row: &&Record| {
            self.is_free(row, request.skip_recent)
                && is_ours(row)
                && is_behind(row)
                && !request.held.contains(&row.seq)
                && !is_busy(row)
        };
        let mut due: Vec<&Record> = self.rows.values().filter(is_wanted).collect();
        due.sort_by_key(|row| (row.due_at, row.seq));
        due.truncate(request.limit as usize);
        due
    }

    /// Claims those of these events that may be claimed and are as the fences say.
    pub(super) fn claim(&mut self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Vec<Taken> {
        let is_its = |row: &Record, fence: &Fence| {
            let as_it_is = Fence::new(row.seq, 0, row.claim_seq);
            *fence == as_it_is || (*fence == self.fence(row) && self.is_owner(owner.as_str(), self.partition(row)))
        };
        let is_asked = |row: &Record| fences.iter().any(|fence| is_its(row, fence));
        let may_be = |row: &&Record| is_asked(row) && self.is_free(row, Duration::ZERO);
        let chosen: Vec<u64> = self.rows.values().filter(may_be).map(|row| row.seq).collect();
        chosen.into_iter().map(|seq| self.take(seq, owner, lease)).collect()
    }

    /// The `seq` of those that hold for the whole lease from now, in order.
    pub(super) fn renew(&mut self, fences: &[Fence], lease: Duration) -> Vec<u64> {
        let lease_end = self.now.plus(lease);
        let mut held: Vec<u64> = Vec::new();
        for fence in fences {
            if let Some(row) = self.claimed(*fence) {
                row.lease_end = Some(lease_end);
                held.push(row.seq);
            }
        }
        held.sort_unstable();
        held
    }

    /// Gives back the claims that an owner inserted rows with. Returns those of these events that are there: none of them needs
    /// a second look.
    pub(super) fn give_back(&mut self, owner: &OwnerId, ids: &[EventId]) -> Vec<EventId> {
        let mut there = Vec::new();
        for row in self.rows.values_mut().filter(|row| ids.contains(&row.event_id)) {
            there.push(row.event_id);
            let with_the_row = row.claim_seq == 1 && row.locked_at == Some(row.created_at);
            if with_the_row && row.locked_by.as_deref() == Some(owner.as_str()) && is_unfinished(row) {
                row.claim_seq += 1;
                row.claims = row.claims.saturating_sub(1);
                (row.locked_by, row.locked_at, row.lease_end) = (None, None, None);
            }
        }
        there
    }

    /// Counts a start. False when the claim is lost.
    pub(super) fn count_start(&mut self, fence: Fence) -> bool {
        let Some(row) = self.claimed(fence) else { return false };
        row.starts += 1;
        true
    }

    /// Takes a start back, whoever holds the event.
    pub(super) fn uncount_start(&mut self, seq: u64) {
        if let Some(row) = self.rows.get_mut(&seq).filter(|row| is_unfinished(row)) {
            row.starts = row.starts.saturating_sub(1);
        }
    }

    /// Writes outcomes. Returns how many were dropped.
    pub(super) fn settle(&mut self, settled: &[Settled]) -> u64 {
        settled.iter().map(|settled| u64::from(!self.settle_one(settled))).sum()
    }

    /// Writes outcomes that waited for their rows, judged by these epochs instead of those that are there now.
    pub(super) fn settle_by(&mut self, epochs: &[u32], settled: &[Settled]) -> u64 {
        let now = std::mem::replace(&mut self.epochs, epochs.to_vec());
        let dropped = self.settle(settled);
        self.epochs = now;
        dropped
    }

    /// False when the outcome is dropped.
    pub(super) fn settle_one(&mut self, settled: &Settled) -> bool {
        let now = self.now;
        let later = |after: Duration| Some(now.plus(after.min(LONGEST)));
        let Some(row) = self.held(settled.fence) else { return false };
        let was_claimed = row.locked_by.take().is_some();
        row.locked_at = None;
        row.lease_end = None;
        row.claim_seq += 1;
        // An outcome ends the counts of claims and starts. A parked event had none; one that never started gives this claim
        // back.
        (row.claims, row.starts) = match settled.settlement {
            Settlement::Behind { .. } | Settlement::Released { .. } => {
                (row.claims.saturating_sub(u32::from(was_claimed)), row.starts)
            }
            Settlement::Parked { .. } => (0, row.starts),
            _ => (0, 0),
        };
        row.wait_since = match &settled.settlement {
            Settlement::Released { reason: Some(_), .. } => row.wait_since.or(Some(now)),
            Settlement::Done | Settlement::Released { .. } => row.wait_since,
            _ => None,
        };
        row.wait_reason = match &settled.settlement {
            Settlement::Done => row.wait_reason.take(),
            Settlement::Released { reason, .. } => reason.as_deref().map(|reason| kept(reason).chars().take(300).collect()),
            _ => None,
        };
        let cost = settled.cost.as_deref().cloned();
        match &settled.settlement {
            Settlement::Done => {
                finish(row, Status::Done, now);
                row.last_cost = cost.or(row.last_cost.take());
            }
            Settlement::Erased => {
                self.rows.remove(&settled.fence.sequence);
            }
            Settlement::Deferred { after } => {
                row.status = Status::New;
                row.deferrals += 1;
                row.due_at = later(*after);
                row.last_cost = cost.or(row.last_cost.take());
            }
            Settlement::Retry { after, error } => {
                row.status = Status::Retry;
                row.attempts += 1;
                row.due_at = later(*after);
                row.last_error = Some(kept(error));
                row.last_cost = cost;
            }
            Settlement::Dead { error, counted, blocks } => {
                finish(row, Status::Dead, now);
                row.attempts += u32::from(*counted);
                row.last_error = Some(kept(error));
                row.last_cost = cost;
                row.blocks = *blocks && row.aggregate_id.is_some();
            }
            Settlement::Parked { reason } => {
                row.due_at = None;
                row.parked = Some(kept(reason));
            }
            Settlement::Behind { sequence } => {
                row.due_at = None;
                row.behind = Some(*sequence);
            }
            // At once: it keeps its place among those that are due.
            Settlement::Released { after, .. } if after.is_zero() => {}
            Settlement::Released { after, .. } => row.due_at = later(*after),
        }
        true
    }
}

/// Leaves those that fit: no further one once those before have this many bytes together.
fn cut(rows: &mut Vec<&Record>, max_bytes: usize) {
    let mut bytes = 0;
    let fitting = rows.iter().take_while(|row| {
        let before = bytes;
        bytes += row.payload_bytes + header_bytes(row);
        before < max_bytes as u64
    });
    let fitting = fitting.count();
    rows.truncate(fitting);
}

fn finish(row: &mut Record, status: Status, now: Timestamp) {
    row.status = status;
    row.done_at = Some(now);
    row.due_at = None;
    row.parked = None;
}

fn kept(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(LONGEST_ERROR).collect()
}

/// The bytes of the headers as they are stored, as JSON; none are no text.
fn header_bytes(row: &Record) -> u64 {
    let headers = serde_json::to_string(&row.headers).expect("texts are JSON");
    if row.headers.iter().next().is_none() { 0 } else { headers.len() as u64 }
}
