//! Whether this host works, or stands aside because others can deliver what it cannot. Pure: stalls and rows in, decisions out.
//!
//! Every host tells in its row which routes are stalled here. A host that stands aside takes no partitions, so that the others deliver
//! everything; after a rest it tries again. Where all hosts have the same stall, the fault is not the host's, and none stands aside.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{NodeRecord, StalledRoute};

/// How long no event of a listener must have been answered since one was given back before its host says so.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(3);
/// How long a host stands aside at first. Each further rest is twice as long, until an event is answered again.
const FIRST_REST: Duration = Duration::from_secs(30);
const LONGEST_REST: Duration = Duration::from_secs(10 * 60);

/// A stall of this host.
#[derive(Clone, Debug)]
pub(super) struct Stalled {
    pub(super) route: StalledRoute,
    /// When the last event was given back.
    pub(super) last: Instant,
    /// Whether the stall has lasted for [`STALLED_AFTER`].
    pub(super) is_lasting: bool,
}

/// Whether this host works.
#[derive(Debug)]
pub(super) struct Standing {
    state: State,
    next_rest: Duration,
}

#[derive(Debug)]
enum State {
    Works,
    /// It takes no partitions for a time, since these routes are stalled here.
    Aside {
        since: Instant,
        until: Instant,
        stalled: Vec<StalledRoute>,
    },
    /// It works again, and has seen no event of these routes answered since then.
    Tries {
        since: Instant,
        stalled: Vec<StalledRoute>,
    },
}

/// What a decision changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This host stands aside for `rest`; `other` can deliver what it cannot.
    Aside { other: String, rest: Duration },
    /// This host takes partitions again.
    Back,
}

impl Standing {
    pub(super) fn new() -> Self {
        Self { state: State::Works, next_rest: FIRST_REST }
    }

    /// Whether this host stands aside.
    pub(super) fn is_aside(&self) -> bool {
        matches!(self.state, State::Aside { .. })
    }

    /// Whether this host has stood aside for at least this long.
    pub(super) fn has_been_aside_for(&self, least: Duration) -> bool {
        matches!(self.state, State::Aside { since, .. } if since.elapsed() >= least)
    }

    /// Whether the decision depends on the other hosts.
    pub(super) fn asks_for_others(&self, stalls: &[Stalled]) -> bool {
        self.is_aside() || stalls.iter().any(|stall| self.is_failing(stall))
    }

    /// What the others are to be told: the stalls that count. While this host stands aside it learns nothing new of them.
    pub(super) fn to_tell(&self, stalls: &[Stalled]) -> Vec<StalledRoute> {
        match &self.state {
            State::Aside { stalled, .. } => stalled.clone(),
            State::Works | State::Tries { .. } => {
                stalls.iter().filter(|stall| self.is_failing(stall)).map(|stall| stall.route.clone()).collect()
            }
        }
    }

    /// Decides. `told` is what this host's row says, so that the others could tell of the same stalls before this host goes by theirs;
    /// `others` are all other hosts, or empty while [`asks_for_others`](Self::asks_for_others) says that they do not matter.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        stalls: &[Stalled],
        told: &[StalledRoute],
        others: &[NodeRecord],
    ) -> Option<Change> {
        let failing = self.to_tell(stalls);
        let other = host_without(&failing, others);
        match &self.state {
            State::Aside { until, .. } if other.is_some() && now < *until => None,
            State::Aside { stalled, .. } => {
                self.state = State::Tries { since: now, stalled: stalled.clone() };
                Some(Change::Back)
            }
            State::Works | State::Tries { .. } => {
                let is_told = |route: &StalledRoute| told.iter().any(|told| told.is_same(route));
                if let Some(other) = other.filter(|_| failing.iter().all(is_told)) {
                    let (other, rest) = (other.label.clone(), self.next_rest);
                    self.next_rest = (rest * 2).min(LONGEST_REST);
                    self.state = State::Aside { since: now, until: now + rest, stalled: failing };
                    return Some(Change::Aside { other, rest });
                }
                let remains = |tried: &[StalledRoute]| stalls.iter().any(|stall| contains(tried, &stall.route));
                if matches!(&self.state, State::Tries { stalled, .. } if !remains(stalled)) {
                    *self = Self::new();
                }
                None
            }
        }
    }

    /// Whether a stall counts: it has lasted, or it is one that this host stood aside for, and its events are given back again.
    fn is_failing(&self, stall: &Stalled) -> bool {
        match &self.state {
            State::Tries { since, stalled } if contains(stalled, &stall.route) => stall.last > *since,
            _ => stall.is_lasting,
        }
    }
}

fn contains(routes: &[StalledRoute], route: &StalledRoute) -> bool {
    routes.iter().any(|known| known.is_same(route))
}

/// A host that can deliver more than this one, whose stalls are `own`: one that cannot read the table delivers nothing, and else the
/// routes are counted. What no host can deliver does not count.
fn host_without<'n>(own: &[StalledRoute], others: &'n [NodeRecord]) -> Option<&'n NodeRecord> {
    let working = || others.iter().filter(|node| node.alive && node.room > 0);
    let is_everywhere = |route: &StalledRoute| contains(own, route) && working().all(|node| contains(&node.stalled, route));
    let lacks = |stalled: &[StalledRoute]| {
        let counted = || stalled.iter().filter(|route| !is_everywhere(route));
        (counted().any(StalledRoute::is_all), counted().count())
    };
    working().find(|node| lacks(&node.stalled) < lacks(own))
}

#[cfg(test)]
mod tests;
