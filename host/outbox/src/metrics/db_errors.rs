//! Statements that the database did not do, by kind of error.

use super::Counter;
use crate::store::StoreError;

/// Every kind, as [`StoreError::code`] names them.
const KINDS: [&str; 26] = [
    "closed",
    "corrupt",
    "disconnected",
    "failed",
    "forbidden",
    "full",
    "locked",
    "login_refused",
    "moved",
    "no_index",
    "no_schema",
    "not_ours",
    "outdated",
    "partitions_moved",
    "read_only",
    "row",
    "schema_newer",
    "schema_older",
    "session_lost",
    "setting",
    "stale_read",
    "standby",
    "timed_out",
    "too_many_connections",
    "unreachable",
    "url",
];

/// How many statements the database did not do, by kind of error.
#[derive(Debug, Default)]
pub struct DbErrors([Counter; KINDS.len()]);

impl DbErrors {
    pub(super) fn count(&self, error: &StoreError) {
        let kind = KINDS.binary_search(&error.code());
        if let Some(counter) = kind.ok().and_then(|kind| self.0.get(kind)) {
            counter.increment();
        }
    }

    /// The number for each kind, by name; kinds without an error included.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.into_iter().zip(self.0.iter().map(Counter::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_kind_that_is_counted() {
        let (action, table) = ("claim", || "outbox_event".to_owned());
        let source = || sqlx::Error::PoolClosed;
        let errors = [
            StoreError::Url { url: table(), hint: table() },
            StoreError::Parameter { url: table(), parameter: table(), hint: table() },
            StoreError::AddressUnread(table()),
            StoreError::LoginRefused { action, source: source() },
            StoreError::Unreachable { database: table(), why: table(), source: None },
            StoreError::Moved { file: table(), why: action, advice: action },
            StoreError::Locked { action, source: source() },
            StoreError::PartitionsMoved { action, outcomes: 1 },
            StoreError::ReadOnly { action, source: source() },
            StoreError::Standby { action, source: source() },
            StoreError::StaleRead { action, server: table() },
            StoreError::Disconnected { action, source: source() },
            StoreError::Outdated { action, source: source() },
            StoreError::TooManyConnections { action, source: source() },
            StoreError::Setting { action, fix: action, source: source() },
            StoreError::TimedOut { action, source: source() },
            StoreError::Forbidden { action, source: source() },
            StoreError::NoNamespace { schema: table() },
            StoreError::Full { action, source: source() },
            StoreError::NotOurs { table: table() },
            StoreError::EarlierBuild { table: table() },
            StoreError::ChildTables { table: table() },
            StoreError::NoSchema { table: table() },
            StoreError::NoVersion { table: table() },
            StoreError::NoIndex { table: table(), index: "ordered" },
            StoreError::SchemaOlder { table: table(), found: 1, wanted: 2 },
            StoreError::SchemaNewer { table: table(), found: 2, wanted: 1 },
            StoreError::SessionLost { why: table() },
            StoreError::Row { sequence: 1, why: table() },
            StoreError::Corrupt { action, source: source() },
            StoreError::Closed { action },
            StoreError::Failed { action, source: source() },
        ];
        let counted = DbErrors::default();

        for error in &errors {
            counted.count(error);
        }

        assert!(KINDS.is_sorted(), "they are searched for");
        assert_eq!(counted.counts().map(|(_, count)| count).sum::<u64>(), errors.len() as u64);
        assert!(
            counted.counts().all(|(_, count)| count > 0),
            "no kind is left over: {:?}",
            counted.counts().collect::<Vec<_>>()
        );
        assert!(
            counted.counts().any(|found| found == ("no_schema", 3)),
            "a missing schema is one kind, whatever is missing of it"
        );
    }
}
