//! SQLite's errors, sorted by what can be done about them.

use crate::StoreError;

pub(super) const PERM: i32 = 3;
pub(super) const BUSY: i32 = 5;
pub(super) const LOCKED: i32 = 6;
pub(super) const READONLY: i32 = 8;
pub(super) const CORRUPT: i32 = 11;
pub(super) const FULL: i32 = 13;
pub(super) const CANTOPEN: i32 = 14;
pub(super) const AUTH: i32 = 23;
pub(super) const NOTADB: i32 = 26;

/// SQLite's own code of an error, with its extension.
pub(super) fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Sorts a driver's error by what can be done about it.
pub(super) fn failed(action: &'static str, source: sqlx::Error) -> StoreError {
    match code(&source).map(|code| code & 0xff) {
        Some(BUSY | LOCKED) => StoreError::Locked { action, source },
        Some(READONLY) => StoreError::ReadOnly { action, source },
        Some(FULL) => StoreError::Full { action, source },
        Some(CORRUPT | NOTADB) => StoreError::Corrupt { action, source },
        _ if matches!(source, sqlx::Error::PoolClosed) => StoreError::Closed { action },
        _ => StoreError::Failed { action, source },
    }
}
