//! Reads that only the primary answers.
//!
//! A proxy that sends reads to replicas, or an address that leads to several servers in turn, makes a replica answer. It shows the
//! tables as they were some time ago: events that were delivered look due. A replica that is read-only refuses statements that write by
//! itself. Each statement that only reads, and that the host acts on, contains [`on_primary!`].

use super::error::number;

/// A condition that is true on a server that takes writes. On a read-only one it is an error (a number that is too large), even if the
/// statement finds no row: the server evaluates it once for each statement, before it reads a row. MySQL shows the variables as
/// numbers, MariaDB as words.
macro_rules! on_primary {
    () => {
        "~0 + (CONCAT(@@read_only, @@innodb_read_only) NOT IN ('OFFOFF', '00')) > 0"
    };
}
pub(super) use on_primary;

/// Value is out of range.
const OUT_OF_RANGE: u16 = 1690;

/// Whether an error is that of [`on_primary!`]. The server quotes the expression, so an error of a user's trigger is not taken for it.
pub(super) fn is_of_read_only_server(error: &sqlx::Error) -> bool {
    let quotes_check = |message: &str| ["read_only", "~0 ", "~(0)"].iter().any(|part| message.contains(part));
    number(error) == Some(OUT_OF_RANGE) && error.as_database_error().is_some_and(|error| quotes_check(error.message()))
}
