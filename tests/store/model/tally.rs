//! How often traces came to what they are there for.

use std::collections::BTreeMap;
use std::fmt;

/// Something that happens only when several owners meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Met {
    /// Partitions were taken whose owner had not given them back.
    Abandoned,
    /// The leases of an owner whose session was gone were ended.
    LeasesEnded,
    /// Those of an owner whose session lives were not.
    NotAbandoned,
    /// An event was read that another owner had in hand under the same number.
    ReadAgain,
    /// An event was read that somebody had claimed for too short a time.
    ReadUnderClaim,
    /// An event was read that waits behind another of its aggregate.
    BehindItsAggregate,
    /// An event was read as the front of all.
    Front,
    /// An outcome came for an event that was as it was read, but in another owner's partition.
    LostItsPartition,
    /// An outcome waited for its row while hosts did something.
    Waited,
    /// Meanwhile its partition got another owner.
    WaitedTooLong,
    /// A claim was to be renewed that was over.
    RenewalRefused,
}

/// All of them.
const ALL: [Met; 11] = [
    Met::Abandoned,
    Met::LeasesEnded,
    Met::NotAbandoned,
    Met::ReadAgain,
    Met::ReadUnderClaim,
    Met::BehindItsAggregate,
    Met::Front,
    Met::LostItsPartition,
    Met::Waited,
    Met::WaitedTooLong,
    Met::RenewalRefused,
];

/// How often each.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(BTreeMap<Met, u64>);

impl Tally {
    pub(super) fn add(&mut self, what: Met, how_often: u64) {
        *self.0.entry(what).or_default() += how_often;
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (what, how_often) in &other.0 {
            self.add(*what, *how_often);
        }
    }

    /// What never happened.
    pub(super) fn missing(&self) -> Vec<Met> {
        ALL.into_iter().filter(|what| self.0.get(what).is_none_or(|how_often| *how_often == 0)).collect()
    }
}

/// As a list of figures.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures: Vec<String> = self.0.iter().map(|(what, how_often)| format!("{what:?} {how_often}")).collect();
        f.write_str(&figures.join(", "))
    }
}
