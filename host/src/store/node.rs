//! Who else works on the table.

use serde::{Deserialize, Serialize};

use crate::event::OwnerId;
use crate::time::Timestamp;

/// How many partitions the aggregates are spread over: the most nodes that can share the work of order by aggregate.
pub const PARTITIONS: u16 = 256;

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
    /// What its plugins are, as one JSON list, which the store does not read; `None` leaves what it said before.
    pub plugins: Option<String>,
}

/// A host, as the others see it. Field names are column names.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
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
    /// How many partitions it holds.
    pub partitions: u16,
    /// What its plugins are, as it said last: one JSON list; `None` for a host without plugins.
    #[serde(skip)]
    pub plugins: Option<String>,
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
            plugins: node.plugins.clone(),
        }
    }
}
