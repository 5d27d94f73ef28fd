//! The server's errors, sorted by what can be done about them.

use sqlx::mysql::MySqlDatabaseError;

use crate::StoreError;

/// Somebody has a row that we want, and wants one that we have.
pub(super) const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// The key is there already.
const DUPLICATE: u16 = 1062;
/// MySQL and MariaDB cut off a statement that takes too long, each by its own number.
const TOO_LONG: [u16; 2] = [3024, 1969];
const DISK_FULL: [u16; 3] = [1021, 1114, 3675];
/// `read_only`, `super_read_only`, a replica after a failover.
const READ_ONLY: [u16; 2] = [1792, 1836];
/// "The server is running with the … option": read-only among others.
const PREVENTED: u16 = 1290;
/// Access denied (by two plugins), the password or the account is expired or locked.
pub(super) const REFUSED_LOGIN: [u16; 6] = [1045, 1698, 1862, 3118, 4151, 3955];
/// Too many connections, in all or for this user.
const CROWDED: [u16; 3] = [1040, 1203, 1226];
/// On a table, on a column.
pub(super) const DENIED: [u16; 2] = [1142, 1143];
const NO_SUCH_TABLE: u16 = 1146;
/// Shutting down, killed, disconnected for idling, a cluster node that is not ready.
const CUT: [u16; 8] = [1053, 1077, 1079, 1152, 1317, 1927, 4031, 1047];

/// READ COMMITTED does not go with `binlog_format = STATEMENT`, which is a setting of each session.
const BINLOG_FORMAT: u16 = 1665;
/// Settings that a session cannot override, by the error that they cause, with their correction.
const SETTINGS: [(u16, &str); 2] = [
    (BINLOG_FORMAT, "run: SET GLOBAL binlog_format = ROW, and write the same into the server's configuration"),
    (1461, "raise max_prepared_stmt_count with SET GLOBAL, or close the sessions of the programs that use it up"),
];
/// The server closes a new connection: `init_connect` fails.
pub(super) const ABORTED: u16 = 1184;

/// A prepared statement met a table that was altered, and could not be prepared again.
const OUTDATED: u16 = 1615;

/// The server's own number of an error.
pub(super) fn number(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(DUPLICATE)
}

pub(super) fn is_no_such_table(error: &sqlx::Error) -> bool {
    number(error) == Some(NO_SUCH_TABLE)
}

/// Sorts a driver's error by what can be done about it.
pub(super) fn failed(action: &'static str, source: sqlx::Error) -> StoreError {
    match number(&source) {
        Some(DEADLOCK | LOCK_WAIT_TIMEOUT) => StoreError::Locked { action, source },
        Some(OUTDATED) => StoreError::Outdated { action, source },
        Some(code) if TOO_LONG.contains(&code) => StoreError::TimedOut { action, source },
        Some(code) if DISK_FULL.contains(&code) => StoreError::Full { action, source },
        Some(code) if READ_ONLY.contains(&code) || (code == PREVENTED && says_read_only(&source)) => {
            StoreError::Standby { action, source }
        }
        Some(code) if DENIED.contains(&code) => StoreError::Forbidden { action, source },
        Some(code) if CROWDED.contains(&code) => StoreError::TooManyConnections { action, source },
        Some(code) if let Some(fix) = setting(code) => StoreError::Setting { action, fix, source },
        Some(code) if REFUSED_LOGIN.contains(&code) => StoreError::LoginRefused { action, source },
        Some(code) if CUT.contains(&code) => StoreError::Disconnected { action, source },
        None if matches!(source, sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_)) => {
            StoreError::Disconnected { action, source }
        }
        _ if matches!(source, sqlx::Error::PoolClosed) => StoreError::Closed { action },
        _ => StoreError::Failed { action, source },
    }
}

/// The correction of the setting that causes an error. `None` if no setting does.
fn setting(code: u16) -> Option<&'static str> {
    SETTINGS.iter().find(|(cause, _)| *cause == code).map(|(_, fix)| *fix)
}

fn says_read_only(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().contains("read-only") || error.message().contains("read_only"))
}

/// Whether an error may concern every connection that is open now. A server that has no connection left serves those that there
/// are.
pub(super) fn concerns_all(error: &StoreError) -> bool {
    match error {
        StoreError::Standby { .. }
        | StoreError::StaleRead { .. }
        | StoreError::Disconnected { .. }
        | StoreError::Outdated { .. } => true,
        // A session keeps the value with which it began.
        StoreError::Setting { source, .. } => number(source) == Some(BINLOG_FORMAT),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_takes_the_trust_in_the_others() {
        assert!(concerns_all(&failed("test", sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()))));
    }

    #[test]
    fn an_error_of_one_statement_says_nothing_of_the_connection() {
        assert!(!concerns_all(&failed("test", sqlx::Error::RowNotFound)));
    }
}
