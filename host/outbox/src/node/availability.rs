//! Whether this host works, or stands aside because others can deliver what it cannot. Pure: stalls and rows in, decisions out.
//!
//! Every host reports in its row which routes are stalled there. A host that stands aside takes no partitions, so that the others
//! deliver everything; after a rest it tries again. Where all hosts have the same stall, the fault is not the host's, and none stands
//! aside. While another host reports fewer stalls, a host that could not read or store comes back only after a trial that could.

use std::time::Duration;

use tokio::time::Instant;

use super::stalls::LocalStall;
use super::{HEARTBEATS, LEASE_ENDS_AFTER};
use crate::store::{Peer, StalledRoute};

/// The shortest and the longest time for which a host stands aside.
const FIRST_REST: Duration = Duration::from_secs(20);
const LONGEST_REST: Duration = Duration::from_secs(10 * 60);
/// A rest is this part of the time since the host first stood aside, so that it notices early enough that the trouble is over.
const PART_OF_TROUBLE: u32 = 5;

/// Whether this host works.
#[derive(Debug)]
pub(super) struct Availability {
    state: State,
    /// When this host first stood aside, until an event is answered again.
    troubled_since: Option<Instant>,
    /// How long it takes until other hosts have the events in flight of a host that lets its lease end.
    handover: Duration,
}

#[derive(Debug)]
enum State {
    Works,
    /// It takes no partitions for a time, since these routes are stalled here.
    Aside {
        since: Instant,
        until: Instant,
        stalled: Vec<StalledRoute>,
        /// Whether the last trial could read and store.
        can_read_and_store: bool,
    },
    /// It works again. Whether these routes are stalled still is not known before one of their events is answered or given back.
    Retrying {
        since: Instant,
        stalled: Vec<StalledRoute>,
    },
}

/// The other live hosts of this host's mode.
#[derive(Debug)]
pub(super) enum Peers {
    /// Their rows.
    Read(Vec<Peer>),
    /// The number of those that work. Their rows could not be read from the primary.
    Counted(u32),
    /// They could not be read, or were not needed.
    Unknown,
}

/// The change that a decision made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This host stands aside for `rest`; `other` reports fewer stalls.
    Aside { other: String, rest: Duration },
    /// This host takes partitions again.
    Back,
}

impl Availability {
    /// For a host with this lease.
    pub(super) fn new(lease: Duration) -> Self {
        // The last heartbeat comes shortly before this host lets its lease end, and the others look at each of theirs.
        let handover = LEASE_ENDS_AFTER + lease + lease * 2 / HEARTBEATS;
        Self { state: State::Works, troubled_since: None, handover }
    }

    /// Whether this host stands aside.
    pub(super) fn is_aside(&self) -> bool {
        matches!(self.state, State::Aside { .. })
    }

    /// Whether this host stands aside because it cannot read the table or store outcomes. Only trials show whether it can again: it has no
    /// partitions to read.
    pub(super) fn needs_trial(&self) -> bool {
        matches!(&self.state, State::Aside { stalled, .. } if stalled.iter().any(StalledRoute::is_all))
    }

    /// Whether the last trial could read and store.
    pub(super) fn has_passed_trial(&self) -> bool {
        self.needs_trial() && matches!(self.state, State::Aside { can_read_and_store: true, .. })
    }

    /// Notes whether a trial could read and store.
    pub(super) fn note_trial(&mut self, succeeded: bool) {
        if let State::Aside { can_read_and_store, .. } = &mut self.state {
            *can_read_and_store = succeeded;
        }
    }

    /// Whether this host has stood aside for at least this long. While it cannot read or store, the time begins anew after
    /// each handover.
    pub(super) fn has_been_aside_for(&self, least: Duration) -> bool {
        matches!(self.state, State::Aside { since, .. } if since.elapsed() >= least)
    }

    /// Whether the decision depends on the other hosts.
    pub(super) fn needs_peers(&self, stalls: &[LocalStall]) -> bool {
        self.is_aside() || stalls.iter().any(|stall| self.is_failing(stall))
    }

    /// The stalls for this host's row. While it stands aside it learns nothing new of those that it stood aside for.
    pub(super) fn reported(&self, stalls: &[LocalStall]) -> Vec<StalledRoute> {
        match &self.state {
            State::Aside { stalled, .. } => stalled.clone(),
            State::Works | State::Retrying { .. } => stalls.iter().map(|stall| stall.route.clone()).collect(),
        }
    }

    /// Updates the state and returns the change, if any. A host stands aside only for stalls that its row already reports: otherwise
    /// two hosts with the same fault could yield to each other. `digest` stands for this host's listeners. If the other hosts are only
    /// counted, a host that can deliver nothing yields to them: it loses nothing by that.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        stalls: &[LocalStall],
        last_reported: &[StalledRoute],
        digest: &str,
        peers: &Peers,
    ) -> Option<Change> {
        let own = self.reported(stalls);
        let other = match peers {
            Peers::Read(peers) => peer_with_fewer_stalls(&own, digest, peers).map(|peer| peer.label.as_str()),
            Peers::Counted(1..) if own.iter().any(StalledRoute::is_all) => Some("another host"),
            Peers::Counted(_) | Peers::Unknown => None,
        };
        match &mut self.state {
            State::Aside { until, .. } if now < *until && (other.is_some() || !matches!(peers, Peers::Read(_))) => None,
            // Events of another try would have to be handed over, too.
            State::Aside { since, until, stalled, can_read_and_store }
                if other.is_some()
                    && (!*can_read_and_store || stalls.iter().any(|stall| is_new_of_all(&stall.route, stalled))) =>
            {
                let new: Vec<StalledRoute> =
                    stalls.iter().map(|stall| &stall.route).filter(|route| is_new_of_all(route, stalled)).cloned().collect();
                if !new.is_empty() {
                    (*until, *can_read_and_store) = (now + self.handover, false);
                    stalled.splice(..0, new);
                }
                // Heartbeats find out for a while whether its partitions have a new owner.
                if now.saturating_duration_since(*since) >= self.handover {
                    *since = now;
                }
                None
            }
            State::Aside { stalled, .. } => {
                let stalled = std::mem::take(stalled);
                self.state = State::Retrying { since: now, stalled };
                Some(Change::Back)
            }
            State::Works | State::Retrying { .. } => {
                let is_failing = stalls.iter().any(|stall| self.is_failing(stall));
                let is_reported = own.iter().all(|route| contains(last_reported, route));
                if let Some(other) = other.filter(|_| is_failing && is_reported) {
                    let other = other.to_owned();
                    return Some(Change::Aside { other, rest: self.stand_aside(now, own) });
                }
                let remains = |retried: &[StalledRoute]| retried.iter().any(|route| contains(&own, route));
                if matches!(&self.state, State::Retrying { stalled, .. } if !remains(stalled)) {
                    (self.state, self.troubled_since) = (State::Works, None);
                }
                None
            }
        }
    }

    /// Begins a rest, and returns its length.
    fn stand_aside(&mut self, now: Instant, stalled: Vec<StalledRoute>) -> Duration {
        let has_all = stalled.iter().any(StalledRoute::is_all);
        let since = *self.troubled_since.get_or_insert(now);
        let rest = (now.saturating_duration_since(since) / PART_OF_TROUBLE).clamp(FIRST_REST, LONGEST_REST);
        let rest = if has_all { rest.max(self.handover) } else { rest };
        self.state = State::Aside { since: now, until: now + rest, stalled, can_read_and_store: !has_all };
        rest
    }

    /// Whether a stall is a reason to stand aside. One that this host stood aside for counts once its events are given back
    /// again.
    fn is_failing(&self, stall: &LocalStall) -> bool {
        match &self.state {
            State::Retrying { since, stalled } if contains(stalled, &stall.route) => stall.last > *since,
            _ => true,
        }
    }
}

/// Whether this host can deliver nothing now.
pub(super) fn has_all(stalls: &[LocalStall]) -> bool {
    stalls.iter().any(|stall| stall.route.is_all())
}

/// Whether a stall is of all routes, and not among these.
fn is_new_of_all(route: &StalledRoute, known: &[StalledRoute]) -> bool {
    route.is_all() && !contains(known, route)
}

fn contains(routes: &[StalledRoute], route: &StalledRoute) -> bool {
    routes.iter().any(|known| known.has_same_route(route))
}

/// A host with the same listeners that can deliver more than this one, whose stalls are `own`. One that cannot read the table or store
/// outcomes delivers nothing; otherwise the routes are counted. What no host can deliver does not count, and a full list may hold more
/// than it names.
fn peer_with_fewer_stalls<'p>(own: &[StalledRoute], digest: &str, peers: &'p [Peer]) -> Option<&'p Peer> {
    let working = || peers.iter().filter(|peer| peer.room > 0 && peer.listeners.digest == digest);
    let is_everywhere =
        |route: &StalledRoute| contains(own, route) && working().all(|peer| contains(&peer.listeners.stalled, route));
    let lacks = |stalled: &[StalledRoute]| {
        let counted = || stalled.iter().filter(|route| !is_everywhere(route));
        (counted().any(StalledRoute::is_all), counted().count())
    };
    let is_full = |peer: &Peer| peer.listeners.stalled.len() >= StalledRoute::NAMED;
    working().find(|peer| !is_full(peer) && lacks(&peer.listeners.stalled) < lacks(own))
}

#[cfg(test)]
mod tests;
