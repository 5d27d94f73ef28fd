//! Optional indexes: each serves one mode or search, and makes every event more expensive.

/// An optional index. See [`SchemaStore::add_index`](super::SchemaStore::add_index).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Index {
    /// The unfinished events of each aggregate. The mode `ordered_by_aggregate` needs it.
    OrderedByAggregate,
    /// The unfinished events in the order of insertion. The mode `ordered` needs it, except on MySQL and MariaDB.
    Ordered,
    /// All events of each aggregate. Searches by aggregate use it.
    Aggregate,
}

impl Index {
    /// Its name for `outbox migrate add-index`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrderedByAggregate => "ordered_by_aggregate",
            Self::Ordered => "ordered",
            Self::Aggregate => "aggregate",
        }
    }
}
