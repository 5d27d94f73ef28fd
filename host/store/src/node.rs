//! Who else works on the table.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::OwnerId;
use outbox_event::text::shorten;
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ListenerReport, Peer, StoreError, StuckEvent, StuckEvents, StuckReason};

/// The hosts that work on the table.
#[async_trait]
pub trait NodeStore: Send + Sync {
    /// Says that a host is alive for another `lease`, and how it works; forgets hosts that have been gone for a day. Returns how many
    /// live hosts have its mode and take partitions, this one included: 0 if the host [is registered](Node::is_registered) and its row is
    /// missing. Then nothing was written for this host.
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError>;

    /// Forgets a host and gives its partitions back.
    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError>;

    /// Every host, live ones and those gone for less than a day, oldest start first.
    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError>;

    /// The other live hosts of this one's mode, at most 1,000. Asked on the connection that is kept for heartbeats: this host may get
    /// no other.
    async fn peers(&self, node: &Node) -> Result<Vec<Peer>, StoreError>;
}

/// The most bytes of a text of a row: 255 characters, which is what the narrowest database has room for.
const MOST_TEXT_BYTES: usize = 1_020;

/// A host, as it tells the others of itself.
#[derive(Clone, Debug)]
pub struct Node {
    /// What stands in `locked_by`: random for each start of a process.
    pub owner: OwnerId,
    /// Where to find it: host name and process number.
    pub label: String,
    /// The mode that it runs in: `multi_node`, `ordered_by_aggregate`, …
    pub mode: &'static str,
    /// The version of its program.
    pub version: &'static str,
    /// Its plugins and sinks as JSON, which the store does not read: see `outbox_event::HostReport`. `None` for a host without both.
    pub report: Option<String>,
    /// The events that are stuck at it, by reason; each reason once.
    pub stuck: Vec<StuckEvents>,
    /// Its listeners, and which of them get nowhere.
    pub listeners: ListenerReport,
    /// Most events that it may have in flight; 0 for a host that takes no partitions: it is about to stop, or stands aside.
    pub room: u32,
    /// Whether a session of it holds its lock.
    pub session: bool,
    /// Whether its row was written before. Then a heartbeat only renews the row, and does not insert it: a heartbeat that the database
    /// executes late must not bring back a host that has left.
    pub is_registered: bool,
}

impl Node {
    /// A host without plugins or a session, with room for one event; for tests, which change what they need.
    #[must_use]
    pub fn new(owner: OwnerId, label: impl Into<String>, mode: &'static str, version: &'static str) -> Self {
        Self {
            owner,
            label: label.into(),
            mode,
            version,
            report: None,
            stuck: Vec::new(),
            listeners: ListenerReport::default(),
            room: 1,
            session: false,
            is_registered: false,
        }
    }

    /// `stuck`, `listeners`, `room` and `session` as their columns have them.
    pub(super) fn columns(&self) -> (Option<String>, String, i32, i16) {
        let room = i32::try_from(self.room).unwrap_or(i32::MAX);
        (StuckEvents::column(&self.stuck), self.listeners.column(), room, self.session.into())
    }
}

/// A host, as the others see it. Field names are column names.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct NodeRecord {
    /// What stands in `locked_by`.
    pub owner: String,
    /// Where to find it.
    pub label: String,
    /// The mode that it runs in.
    pub mode: String,
    /// The version of its program.
    pub version: String,
    /// Since when, by the database's clock.
    pub started_at: Timestamp,
    /// Until when it is taken to be alive, unless it says so again.
    pub alive_until: Timestamp,
    /// Whether that is still to come.
    pub alive: bool,
    /// How many partitions it owns. Those of a host that is not alive are free.
    pub partitions: u16,
    /// Its plugins and sinks as of the last heartbeat, as JSON. `None` for a host without both, if the report is longer than 1 MiB, and
    /// for a host that is gone, because a host that starts again and again leaves many rows.
    #[serde(skip)]
    pub report: Option<String>,
    /// The events that are stuck at it, by reason, as of the last heartbeat; empty if the host is gone.
    #[serde(default)]
    pub stuck: Vec<StuckEvents>,
    /// Its listeners, as of the last heartbeat; empty if the host is gone.
    #[serde(default)]
    pub listeners: ListenerReport,
    /// Most events that it may have in flight; 0 for a host that takes no partitions: it is about to stop, or stands aside.
    #[serde(default)]
    pub room: u32,
    /// Whether a session of it held its lock when it last said that it is alive.
    #[serde(default)]
    pub session: bool,
}

impl NodeRecord {
    /// A host that has just said for the first time that it is alive; for tests, which change what they need.
    #[must_use]
    pub fn new(node: &Node, now: Timestamp) -> Self {
        Self {
            owner: node.owner.as_str().to_owned(),
            label: node.label.clone(),
            mode: node.mode.to_owned(),
            version: node.version.to_owned(),
            started_at: now,
            alive_until: now,
            alive: true,
            partitions: 0,
            report: node.report.clone(),
            stuck: node.stuck.clone(),
            listeners: node.listeners.clone(),
            room: node.room,
            session: node.session,
        }
    }

    /// Whether it is alive and takes no partitions, since other hosts can deliver what it cannot.
    #[must_use]
    pub fn stands_aside(&self) -> bool {
        self.alive && self.room == 0 && !self.listeners.stalled.is_empty()
    }

    /// Whether it delivers events: it is alive and does not stand aside.
    #[must_use]
    pub fn delivers(&self) -> bool {
        self.alive && !self.stands_aside()
    }

    /// Its state in one word: `alive`, `aside` or `gone`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.alive, self.stands_aside()) {
            (false, _) => "gone",
            (true, true) => "aside",
            (true, false) => "alive",
        }
    }

    /// The stuck event with this `seq`, with the reason, if the host is alive and names it.
    #[must_use]
    pub fn stuck_event(&self, seq: u64) -> Option<(StuckReason, &StuckEvent)> {
        let mut stuck = self.stuck.iter().filter(|_| self.alive);
        stuck.find_map(|events| Some((events.reason, events.of(seq)?)))
    }

    /// The events that are stuck at live hosts for this reason, the oldest first. `None` if no event is.
    #[must_use]
    pub fn stuck_at_live(nodes: &[Self], reason: StuckReason) -> Option<StuckEvents> {
        let live = nodes.iter().filter(|node| node.alive);
        let of_hosts: Vec<&StuckEvents> = live.flat_map(|node| &node.stuck).filter(|events| events.reason == reason).collect();
        let count: usize = of_hosts.iter().map(|events| usize::try_from(events.count).unwrap_or(usize::MAX)).sum();
        let mut first: Vec<StuckEvent> = of_hosts.iter().flat_map(|events| &events.first).cloned().collect();
        first.sort_by_key(|one| (one.since, one.seq));
        (count > 0).then(|| StuckEvents::new(reason, count, first))
    }

    /// A row that was read. Whoever can write into the table can tell anything: texts are no longer than a host's own.
    pub(super) fn bounded(mut self) -> Self {
        for text in [&mut self.owner, &mut self.label, &mut self.mode, &mut self.version] {
            shorten(text, MOST_TEXT_BYTES);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_row_that_was_written_by_hand_are_cut_and_those_of_a_host_are_not() {
        let label = "é".repeat(255);
        let owner = OwnerId::generate(&"é".repeat(100));
        let node = Node::new(owner.clone(), label.clone(), "multi_node", "0.1.0");
        let record = NodeRecord::new(&node, Timestamp::from_micros(0));

        let read = record.clone().bounded();
        assert_eq!((read.owner.as_str(), read.label), (owner.as_str(), label));
        let long = "x".repeat(100_000);
        let by_hand = NodeRecord { label: long.clone(), mode: long.clone(), version: long, ..record };
        let read = by_hand.bounded();
        assert!([read.label, read.mode, read.version].iter().all(|text| text.len() < 1_100 && text.ends_with("x…")));
    }
}
