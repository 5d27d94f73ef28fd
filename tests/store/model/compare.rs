//! Holding a database against its specification.

use std::fmt::Debug;
use std::time::Duration;

use outbox::store::Record;
use outbox::time::Timestamp;

use super::table::{Fault, Table};

/// How times of the database and of the table belong together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// How far rows were moved back, because a server's clock cannot be moved on.
    pub(super) passed: Duration,
    /// How far apart they may be. A server's clock goes on by itself; where there is a clock for tests, it is zero.
    pub(super) slack: Duration,
}

impl Times {
    /// Whether a time of the database is that of the table.
    pub(super) fn same(self, expected: Timestamp, found: Timestamp) -> bool {
        let found = found.plus(self.passed);
        found.since(expected).max(expected.since(found)) <= self.slack
    }

    /// Whether two spans are the same.
    pub(super) fn same_span(self, expected: Duration, found: Duration) -> bool {
        expected.abs_diff(found) <= self.slack
    }

    pub(super) fn same_option(self, expected: Option<Timestamp>, found: Option<Timestamp>) -> bool {
        match (expected, found) {
            (Some(expected), Some(found)) => self.same(expected, found),
            (expected, found) => expected == found,
        }
    }

    /// Replaces a time by the expected one where it is the same.
    pub(super) fn settle(self, expected: Timestamp, found: &mut Timestamp) {
        if self.same(expected, *found) {
            *found = expected;
        }
    }

    fn settle_option(self, expected: Option<Timestamp>, found: &mut Option<Timestamp>) {
        if self.same_option(expected, *found) {
            *found = expected;
        }
    }

    /// Replaces the times of a row by the expected ones where they are the same.
    fn settle_row(self, expected: &Record, found: &mut Record) {
        self.settle(expected.occurred_at, &mut found.occurred_at);
        self.settle(expected.created_at, &mut found.created_at);
        self.settle(expected.available_at, &mut found.available_at);
        self.settle_option(expected.due_at, &mut found.due_at);
        self.settle_option(expected.expires_at, &mut found.expires_at);
        self.settle_option(expected.done_at, &mut found.done_at);
        self.settle_option(expected.wait_since, &mut found.wait_since);
        self.settle_option(expected.locked_at, &mut found.locked_at);
        self.settle_option(expected.lease_end, &mut found.lease_end);
    }
}

/// An error when the database answered something else.
pub(super) fn agree<T: Debug + PartialEq>(what: &str, expected: T, found: T) -> Result<(), Fault> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, the database said {found:?}")) }
}

/// An error when the rows of the database are not those of the table. Every column counts but the payload, which claims bring.
pub(super) fn agree_rows(table: &Table, found: Vec<Record>, times: Times) -> Result<(), Fault> {
    let expected: Vec<u64> = table.rows.keys().copied().collect();
    agree("the rows that are there", expected, found.iter().map(|row| row.seq).collect())?;
    let differences: Vec<String> =
        table.rows.values().zip(found).flat_map(|(expected, found)| differences(expected, found, times)).collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}

/// An error when a row of the database is not that of the table.
pub(super) fn agree_row(expected: &Record, found: Record, times: Times) -> Result<(), Fault> {
    let differences = differences(expected, found, times);
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}

fn differences(expected: &Record, mut found: Record, times: Times) -> Vec<String> {
    times.settle_row(expected, &mut found);
    let text = |row: &Record| serde_json::to_string(row).expect("a record is JSON");
    // Nearly always, and much faster.
    if text(expected) == text(&found) {
        return Vec::new();
    }
    let columns = |row: &Record| match serde_json::to_value(row).expect("a record is JSON") {
        serde_json::Value::Object(columns) => columns,
        other => panic!("a record is an object: {other}"),
    };
    let (seq, found) = (expected.seq, columns(&found));
    columns(expected)
        .into_iter()
        .filter(|(column, value)| found.get(column) != Some(value))
        .map(|(column, value)| format!("row {seq}, {column}: expected {value}, found {}", found[&column]))
        .collect()
}
