//! The other hosts on the table, and whether this one goes together with them. Pure: rows in, notices out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::NodeRecord;
use crate::time::Timestamp;

/// The mode in which a host has the table for itself.
const ALONE: &str = "single_node";

/// The other hosts whose mode conflicts with this one's, and what was reported of each.
#[derive(Debug)]
pub(super) struct Others {
    owner: String,
    mode: &'static str,
    lease: Duration,
    /// By their owner.
    known: BTreeMap<String, Known>,
    has_looked: bool,
}

/// What was reported of another host.
#[derive(Debug)]
struct Known {
    alive_until: Timestamp,
    is_certain: bool,
}

/// What the operator should know.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// One of the two has, or is taken to have, the table for itself.
    NotAlone {
        label: String,
        mode: String,
        /// False when it may have been killed: nothing was heard of it since this host came.
        is_certain: bool,
        /// How long ago it said that it is alive, if its lease is as long as ours.
        heard: Duration,
        /// After how long it is forgotten when nothing more is heard of it.
        forgotten: Duration,
    },
    /// Its mode is another.
    OtherMode { label: String, mode: String },
    /// Every host that was reported is gone.
    Gone,
}

impl Others {
    pub(super) fn new(owner: &str, mode: &'static str, lease: Duration) -> Self {
        Self { owner: owner.to_owned(), mode, lease, known: BTreeMap::new(), has_looked: false }
    }

    /// Whether a look at the other hosts is worth its query when this many live hosts have this one's mode.
    pub(super) fn should_look(&self, live: u32) -> bool {
        !self.has_looked || !self.known.is_empty() || (self.mode == ALONE && live > 1)
    }

    /// Compares with what was told before: nothing is told twice. `now` is the time of the database.
    pub(super) fn look(&mut self, nodes: &[NodeRecord], now: Timestamp) -> Vec<Notice> {
        // Whoever was there before this host may have been killed; whoever came after it was not.
        let is_new_certain = std::mem::replace(&mut self.has_looked, true);
        let (owner, mode) = (&self.owner, self.mode);
        let is_misfit = |node: &&NodeRecord| node.alive && node.owner != *owner && (node.mode != mode || mode == ALONE);
        let misfits: Vec<&NodeRecord> = nodes.iter().filter(is_misfit).collect();
        let mut notices = Vec::new();
        for node in &misfits {
            let alone = self.mode == ALONE || node.mode == ALONE;
            match self.known.get_mut(&node.owner) {
                None => {
                    let known = Known { alive_until: node.alive_until, is_certain: is_new_certain };
                    self.known.insert(node.owner.clone(), known);
                    notices.push(if alone {
                        self.not_alone(node, is_new_certain, now)
                    } else {
                        Notice::OtherMode { label: node.label.clone(), mode: node.mode.clone() }
                    });
                }
                // It has said so again, so it was not killed.
                Some(known) if !known.is_certain && node.alive_until > known.alive_until => {
                    known.is_certain = true;
                    notices.extend(alone.then(|| self.not_alone(node, true, now)));
                }
                Some(_) => {}
            }
        }
        let knew_some = !self.known.is_empty();
        self.known.retain(|owner, _| misfits.iter().any(|node| node.owner == *owner));
        if knew_some && self.known.is_empty() {
            notices.push(Notice::Gone);
        }
        notices
    }

    fn not_alone(&self, node: &NodeRecord, is_certain: bool, now: Timestamp) -> Notice {
        let forgotten = node.alive_until.since(now);
        let heard = self.lease.saturating_sub(forgotten);
        Notice::NotAlone { label: node.label.clone(), mode: node.mode.clone(), is_certain, heard, forgotten }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::OwnerId;
    use crate::store::Node;

    const LEASE: Duration = Duration::from_secs(30);

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// A host that said that it is alive at this second.
    fn node(owner: &str, mode: &'static str, said: i64) -> NodeRecord {
        let node = Node::new(OwnerId::known(owner), format!("machine of {owner}"), mode, "1.0.0");
        changed!(NodeRecord { alive_until: time(said).plus(LEASE), ..NodeRecord::new(&node, time(0)) })
    }

    fn not_alone(is_certain: bool, heard: u64, mode: &str) -> Notice {
        Notice::NotAlone {
            label: "machine of a".to_owned(),
            mode: mode.to_owned(),
            is_certain,
            heard: Duration::from_secs(heard),
            forgotten: LEASE - Duration::from_secs(heard),
        }
    }

    #[test]
    fn a_host_that_was_there_before_is_told_at_once_and_for_certain_when_it_speaks_again() {
        let mut others = Others::new("b", ALONE, LEASE);
        assert!(others.should_look(1));
        let own = || node("b", ALONE, 100);

        assert_eq!(others.look(&[node("a", ALONE, 97), own()], time(100)), [not_alone(false, 3, ALONE)]);
        assert_eq!(others.look(&[node("a", ALONE, 97), own()], time(105)), [], "it is not told twice");
        assert_eq!(others.look(&[node("a", ALONE, 107), own()], time(110)), [not_alone(true, 3, ALONE)]);
        assert_eq!(others.look(&[node("a", ALONE, 117), own()], time(120)), [], "nor is that");
        assert_eq!(others.look(&[own()], time(130)), [Notice::Gone]);
        assert!(!others.should_look(1) && others.should_look(2));
    }

    #[test]
    fn a_host_that_was_killed_is_never_told_of_for_certain() {
        let mut others = Others::new("b", ALONE, LEASE);
        assert_eq!(others.look(&[node("a", ALONE, 97)], time(100)), [not_alone(false, 3, ALONE)]);

        let gone = changed!(NodeRecord { alive: false, ..node("a", ALONE, 97) });

        assert_eq!(others.look(&[gone], time(130)), [Notice::Gone]);
    }

    #[test]
    fn a_host_that_comes_later_is_told_for_certain() {
        let mut others = Others::new("b", ALONE, LEASE);
        assert_eq!(others.look(&[node("b", ALONE, 100)], time(100)), []);

        assert_eq!(others.look(&[node("a", ALONE, 109)], time(110)), [not_alone(true, 1, ALONE)]);
    }

    #[test]
    fn hosts_of_other_modes_are_told_once_and_those_of_the_same_mode_share_the_table() {
        let mut others = Others::new("b", "multi_node", LEASE);
        let nodes = |said| {
            [node("a", ALONE, said), node("c", "multi_node", said), node("d", "ordered", said), node("b", "multi_node", said)]
        };
        let other = Notice::OtherMode { label: "machine of d".to_owned(), mode: "ordered".to_owned() };

        assert_eq!(others.look(&nodes(99), time(100)), [not_alone(false, 1, ALONE), other]);
        assert_eq!(others.look(&nodes(109), time(110)), [not_alone(true, 1, ALONE)]);
        assert_eq!(others.look(&nodes(119), time(120)), []);
    }
}
