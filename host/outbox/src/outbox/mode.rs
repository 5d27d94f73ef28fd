//! What an outbox does.

use serde::{Deserialize, Serialize};

use crate::purge::PurgeConfig;
use crate::store::Index;

/// What an outbox does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub enum Mode {
    /// Hot path and poller; this process has the database for itself.
    #[default]
    SingleNode,
    /// Hot path and poller; several processes share the database.
    MultiNode,
    /// Poller only, one worker, one attempt; one host at a time. All events in the order of insertion, each when the outcome of the
    /// one before it is stored. One that failed is dead, and the next one goes; one that was deferred or parked, or whose listener
    /// cannot take it just now, holds up all later ones. A delayed event takes its place when its time comes.
    Ordered,
    /// Poller only; the events of one aggregate one after the other, over any number of workers and hosts.
    OrderedByAggregate,
    /// No delivery.
    WriterOnly,
}

impl Mode {
    /// The name in configuration files, logs and the table of hosts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SingleNode => "single_node",
            Self::MultiNode => "multi_node",
            Self::Ordered => "ordered",
            Self::OrderedByAggregate => "ordered_by_aggregate",
            Self::WriterOnly => "writer_only",
        }
    }

    /// The index that hosts in this mode need, beside those that every schema has. The store says whether its database needs it.
    #[must_use]
    pub const fn index(self) -> Option<Index> {
        match self {
            Self::Ordered => Some(Index::Ordered),
            Self::OrderedByAggregate => Some(Index::OrderedByAggregate),
            Self::SingleNode | Self::MultiNode | Self::WriterOnly => None,
        }
    }

    /// What is wrong with purging like this in this mode; names begin with `prefix`.
    #[must_use]
    pub fn purge_fault(self, purge: &PurgeConfig, prefix: &str) -> Option<String> {
        (self != Self::WriterOnly && purge.undelivered_retention.is_some()).then(|| {
            format!(
                "{prefix}.undelivered_retention is set, but the mode is {}: it deletes events that were never delivered, and is for \
                 writer_only alone; remove it",
                self.as_str()
            )
        })
    }

    /// Whether events go from their commit straight to a worker.
    pub(super) const fn is_hot(self) -> bool {
        matches!(self, Self::SingleNode | Self::MultiNode)
    }
}
