//! Partitions, hosts, and what waits behind what.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::store::{Blocker, HeldPartition, ListenerReport, Node, Unblocked, WaitsFor};
use outbox::{EventId, Status};

use super::table::{NodeRow, Table, is_unfinished};

/// How long a host that is gone is still shown.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3_600);

impl Table {
    /// The earlier events of its aggregate that an event waits for, first one first.
    pub(super) fn waited_for(&self, seq: u64, waits_for: WaitsFor) -> Vec<u64> {
        let Some(row) = self.rows.get(&seq).filter(|row| row.aggregate_id.is_some()) else { return Vec::new() };
        let counts = |status: Status, blocks: bool| match waits_for {
            WaitsFor::Unresolved => matches!(status, Status::New | Status::Retry) || blocks,
            WaitsFor::Untried => status == Status::New,
            WaitsFor::Nothing => false,
        };
        let earlier = self.rows.range(..seq).map(|(_, earlier)| earlier);
        earlier
            .filter(|earlier| earlier.aggregate_type == row.aggregate_type && earlier.aggregate_id == row.aggregate_id)
            .filter(|earlier| counts(earlier.status, earlier.blocks) && earlier.available_at <= self.now)
            .map(|earlier| earlier.seq)
            .collect()
    }

    /// The first that each of these waits for; events whose way is free, and finished ones, are left out.
    pub(super) fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Vec<(u64, u64)> {
        let unfinished = events.iter().filter(|seq| self.rows.get(seq).is_some_and(is_unfinished));
        unfinished.filter_map(|seq| Some((*seq, *self.waited_for(*seq, waits_for).first()?))).collect()
    }

    /// The events that others of these partitions wait behind: those after `after`, at most `limit`.
    pub(super) fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Vec<Blocker> {
        let waiting = self.rows.values().filter(|row| partitions.contains(&self.partition(row)));
        let keys: BTreeSet<(u64, &str, &str)> = waiting
            .filter_map(|row| Some((row.behind?, row.aggregate_type.as_str(), row.aggregate_id.as_deref().unwrap_or(""))))
            .filter(|(behind, _, _)| *behind > after)
            .collect();
        let blocker = |(sequence, aggregate_type, aggregate_id): (u64, &str, &str)| Blocker {
            sequence,
            aggregate_type: aggregate_type.to_owned(),
            aggregate_id: aggregate_id.to_owned(),
        };
        keys.into_iter().map(blocker).take(limit as usize).collect()
    }

    /// Those that wait behind an event, first one first.
    fn waiting_behind(&self, blocker: u64) -> Vec<u64> {
        self.rows.values().filter(|row| row.behind == Some(blocker)).map(|row| row.seq).collect()
    }

    /// Lets events go whose turn it is: the first behind its blocker waits for nobody any more.
    pub(super) fn unblock(&mut self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Unblocked {
        let mut unblocked = Unblocked::default();
        for blocker in blockers {
            let waiting = self.waiting_behind(*blocker);
            let Some(first) = waiting.first() else {
                unblocked.cleared.push(*blocker);
                continue;
            };
            if self.heads(&[*first], waits_for).is_empty() {
                for seq in waiting.iter().take(limit as usize) {
                    let row = self.rows.get_mut(seq).expect("it waits");
                    row.behind = None;
                    row.due_at = Some(self.now);
                }
                let rest = if waiting.len() > limit as usize { &mut unblocked.left } else { &mut unblocked.cleared };
                rest.push(*blocker);
            }
        }
        unblocked.cleared.sort_unstable();
        unblocked.left.sort_unstable();
        unblocked
    }

    /// The aggregates that wait, with what they wait behind: (waiting, blocker, kind, id, the blocker's event if it is there),
    /// longest queue first.
    pub(super) fn blocked_keys(&self) -> Vec<(u64, u64, String, String, Option<EventId>)> {
        let partitions: Vec<u16> = (0..outbox::store::PARTITIONS).collect();
        let mut keys: Vec<_> = self
            .blockers(&partitions, 0, u32::MAX)
            .into_iter()
            .map(|Blocker { sequence, aggregate_type, aggregate_id }| {
                let of_key = |row: &&outbox::store::Record| {
                    row.behind == Some(sequence)
                        && row.aggregate_type == aggregate_type
                        && row.aggregate_id.as_deref().unwrap_or("") == aggregate_id
                };
                let waiting = self.rows.values().filter(of_key).count() as u64;
                (waiting, sequence, aggregate_type, aggregate_id, self.rows.get(&sequence).map(|row| row.event_id))
            })
            .collect();
        keys.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.cmp(other)));
        keys
    }

    /// Whether the owner holds a partition now.
    pub(super) fn holds(&self, owner: &str, partition: u16) -> bool {
        self.is_owner(owner, partition) && self.is_alive(owner)
    }

    /// Whether the owner owns a partition. It need not be alive.
    pub(super) fn is_owner(&self, owner: &str, partition: u16) -> bool {
        self.partitions[usize::from(partition)].as_deref() == Some(owner)
    }

    /// Whether the lease of a host's last heartbeat has not ended.
    fn is_alive(&self, owner: &str) -> bool {
        self.nodes.get(owner).is_some_and(|node| node.alive_until > self.now)
    }

    /// Takes the first partitions without a live owner, until the owner has `most`.
    pub(super) fn keep_partitions(&mut self, owner: &str, most: u16, of: u16) -> Vec<HeldPartition> {
        let is_ours = |partition: &u16| self.is_owner(owner, *partition);
        let other = |partition: &u16| self.partitions[usize::from(*partition)].as_deref();
        let is_free = |partition: &u16| !is_ours(partition) && other(partition).is_none_or(|other| !self.is_alive(other));
        let held: Vec<u16> = (0..outbox::store::PARTITIONS).filter(is_ours).collect();
        let taken: Vec<u16> = (0..of).filter(is_free).take(usize::from(most).saturating_sub(held.len())).collect();
        let mut kept = Vec::new();
        for (number, is_new) in held.into_iter().map(|number| (number, false)).chain(taken.into_iter().map(|new| (new, true))) {
            let place = usize::from(number);
            let before = self.partitions[place].replace(owner.to_owned());
            self.epochs[place] += u32::from(is_new);
            let abandoned = before.is_some_and(|before| before != owner);
            kept.push(HeldPartition { number, epoch: self.epochs[place], abandoned });
        }
        kept.sort_by_key(|partition| partition.number);
        kept
    }

    /// These partitions with their epochs; `of_before`: those with odd numbers as their owner before had them.
    pub(super) fn with_epochs(&self, numbers: &[u16], of_before: bool) -> Vec<HeldPartition> {
        let before = |number: u16| u32::from(of_before && number % 2 == 1);
        let epoch = |number: u16| self.epochs[usize::from(number)].saturating_sub(before(number));
        numbers.iter().map(|number| HeldPartition { number: *number, epoch: epoch(*number), abandoned: false }).collect()
    }

    /// Filters the partitions that the owner owns under these epochs. It need not be alive.
    pub(super) fn still_its_own(&self, owner: &str, partitions: &[HeldPartition]) -> Vec<u16> {
        let is_its_own =
            |held: &&HeldPartition| self.is_owner(owner, held.number) && self.epochs[usize::from(held.number)] == held.epoch;
        partitions.iter().filter(is_its_own).map(|held| held.number).collect()
    }

    /// Gives partitions back that are still the owner's.
    pub(super) fn release_partitions(&mut self, owner: &str, partitions: &[HeldPartition]) {
        for number in self.still_its_own(owner, partitions) {
            self.partitions[usize::from(number)] = None;
        }
    }

    /// Says that a host is alive, and forgets those that have been gone for a day. Returns how many live hosts have its mode and take
    /// partitions, this one included: 0 if its row should be there and is missing.
    pub(super) fn heartbeat(&mut self, node: &Node, lease: Duration) -> u32 {
        let (now, owner) = (self.now, node.owner.as_str().to_owned());
        let Node { mode, room, session, ref listeners, is_registered, .. } = *node;
        if is_registered && !self.nodes.contains_key(&owner) {
            return 0;
        }
        let new = NodeRow { mode, started_at: now, alive_until: now, room, session, listeners: ListenerReport::default() };
        let row = self.nodes.entry(owner.clone()).or_insert(new);
        (row.alive_until, row.room, row.session) = (now.plus(lease), room, session);
        row.listeners.clone_from(listeners);
        let owners: BTreeSet<&str> = self.partitions.iter().flatten().map(String::as_str).collect();
        self.nodes.retain(|owner, node| node.alive_until >= now.minus(REMEMBERED_FOR) || owners.contains(owner.as_str()));
        let has_a_share = |other: &str, row: &NodeRow| row.room > 0 || other == owner;
        let is_live =
            |(other, row): &(&String, &NodeRow)| row.alive_until > now && row.mode == node.mode && has_a_share(other, row);
        u32::try_from(self.nodes.iter().filter(is_live).count()).expect("few nodes")
    }

    /// Forgets a host and gives its partitions back.
    pub(super) fn leave(&mut self, owner: &str) {
        for number in 0..outbox::store::PARTITIONS {
            if self.is_owner(owner, number) {
                self.partitions[usize::from(number)] = None;
            }
        }
        self.nodes.remove(owner);
    }

    /// The others that said that they have a session, and hold partitions, but not their lock.
    pub(super) fn free_sessions(&self, owner: &str) -> Vec<String> {
        let is_missed = |other: &String, row: &NodeRow| {
            row.session && row.alive_until > self.now && other != owner && !self.sessions.contains(other)
        };
        self.nodes.iter().filter(|(other, row)| is_missed(other, row)).map(|(other, _)| other.clone()).collect()
    }

    /// Ends the lease of a live owner that said that it has a session, and does not hold its lock. Returns whether it had one.
    pub(super) fn abandon(&mut self, owner: &str) -> bool {
        if self.sessions.contains(owner) {
            return false;
        }
        let now = self.now;
        let Some(row) = self.nodes.get_mut(owner).filter(|row| row.session && row.alive_until > now) else { return false };
        row.alive_until = now;
        true
    }

    /// Live hosts and those gone for less than a day, oldest start first: (owner, mode, alive, partitions).
    pub(super) fn shown_nodes(&self) -> Vec<(String, String, bool, u16)> {
        let mut shown: Vec<_> =
            self.nodes.iter().filter(|(_, node)| node.alive_until >= self.now.minus(REMEMBERED_FOR)).collect();
        shown.sort_by_key(|(owner, node)| (node.started_at, owner.as_str()));
        let owned = |owner: &str| self.partitions.iter().flatten().filter(|holder| holder.as_str() == owner).count();
        let partitions = |owner: &str| u16::try_from(owned(owner)).expect("few partitions");
        shown
            .into_iter()
            .map(|(owner, node)| (owner.clone(), node.mode.to_owned(), node.alive_until > self.now, partitions(owner)))
            .collect()
    }
}
