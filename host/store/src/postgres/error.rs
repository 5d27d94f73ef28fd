//! A driver's errors, sorted by what can be done about them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;

use super::primary::standby_in;
use crate::StoreError;
use crate::error::is_of_tls;

/// The action of beginning a transaction.
pub(super) const BEGIN: &str = "begin a transaction";

/// The SQLSTATE of an error. Source: PostgreSQL's documentation, appendix A.
fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Sorts a driver's error by what can be done about it.
pub(super) fn failed(action: &'static str, source: sqlx::Error) -> StoreError {
    let source = without_line(source);
    match &source {
        sqlx::Error::PoolClosed => return StoreError::Closed { action },
        // A proxy whose server is gone accepts a connection and closes it: to the driver that is an answer it does not understand.
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => return StoreError::Disconnected { action, source },
        _ => {}
    }
    match code(&source).as_deref() {
        // Lock not available, deadlock, serialisation failure.
        Some("55P03" | "40P01" | "40001") => StoreError::Locked { action, source },
        Some("57014") => StoreError::TimedOut { action, source },
        // The server is stopping, was ended, or is starting; a transaction or a session idled for too long.
        Some("57P01" | "57P02" | "57P03" | "57P05" | "25P03") => StoreError::Disconnected { action, source },
        Some("42501") => StoreError::Forbidden { action, source },
        Some("XX001" | "XX002") => StoreError::Corrupt { action, source },
        _ if is_of_trigger(&source) => StoreError::Failed { action, source },
        // Prepared statements that another session has, or that this one has of somebody else.
        Some("26000" | "42P05") => StoreError::Outdated { action, source },
        Some("0A000") if is_outdated_plan(&source) => StoreError::Outdated { action, source },
        Some("22P02") if let Some(server) = source.as_database_error().and_then(|error| standby_in(error.message())) => {
            StoreError::StaleRead { action, server }
        }
        Some("25006") => StoreError::Standby { action, source },
        // Behind a pooler, each transaction of the host begins with READ WRITE, which a standby does not support.
        Some("0A000") if action == BEGIN => StoreError::Standby { action, source },
        Some("53100") => StoreError::Full { action, source },
        Some("53300") => StoreError::TooManyConnections { action, source },
        Some(code) if code.starts_with("08") => StoreError::Disconnected { action, source },
        _ if is_login_refused(&source) => StoreError::LoginRefused { action, source },
        _ => StoreError::Failed { action, source },
    }
}

/// Whether an error comes from a trigger or from a function of a policy. A trigger may raise any code, or pass on the code of a remote
/// server, so the code says nothing about this server. Only for such errors, and for waits, does the server name a context.
pub(super) fn is_of_trigger(error: &sqlx::Error) -> bool {
    of_server(error).is_some_and(|error| error.r#where().is_some())
}

/// "Feature not supported" is said of many things. Of a statement whose columns have other types now, this function of the server
/// says it, in whatever language the message is.
fn is_outdated_plan(error: &sqlx::Error) -> bool {
    of_server(error).is_some_and(|error| error.routine() == Some("RevalidateCachedQuery"))
}

fn of_server(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Whether the server refuses the user or the password.
pub(super) fn is_login_refused(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("28P01" | "28000"))
}

/// Whether nothing was heard of the server for too long.
pub(super) fn is_silence(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
}

/// Whether the connection that an error came from must not be used again.
pub(super) fn spoils_connection(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Standby { .. }
            | StoreError::StaleRead { .. }
            | StoreError::Disconnected { .. }
            | StoreError::TimedOut { .. }
    )
}

/// Why the first connection could not be had.
pub(super) fn unreachable(database: String, source: sqlx::Error) -> StoreError {
    let source = without_line(source);
    let why = match code(&source).as_deref() {
        Some("28P01" | "28000") => "the server refuses this user; check the user, the password and the server's pg_hba.conf",
        Some("3D000") => "there is no such database on the server; check its name, or let a DBA run CREATE DATABASE",
        Some("53300") => {
            "the server gives this user no further connection; raise its max_connections, or the CONNECTION LIMIT of the user or the database, or let \
             others open fewer"
        }
        Some("57P03") => "the server is starting or stopping; the next try may find it ready",
        _ => match &source {
            error if is_of_tls(error) => "TLS fails; check sslmode and sslrootcert of the address",
            sqlx::Error::Io(_) => "no server answers there; check host and port, and that it runs",
            sqlx::Error::PoolTimedOut => "no answer in time; check host and port, and that a PostgreSQL server listens there",
            _ => "see the cause",
        },
    };
    StoreError::Unreachable { database, why: why.to_owned(), source: Some(source) }
}

/// The driver ends a message of the server in "at line 3655". That line is one of the server's own source, which helps nobody who
/// looks for it in a statement or a file.
fn without_line(error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast::<PgDatabaseError>() {
            Ok(error) => sqlx::Error::Database(Box::new(WithoutSourceLine(*error))),
            Err(error) => sqlx::Error::Database(error),
        },
        error => error,
    }
}

/// An error of the server that shows its message alone. To whoever asks for the type it is the driver's own error.
struct WithoutSourceLine(PgDatabaseError);

impl fmt::Display for WithoutSourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl fmt::Debug for WithoutSourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Error for WithoutSourceLine {}

impl DatabaseError for WithoutSourceLine {
    fn message(&self) -> &str {
        self.0.message()
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        DatabaseError::code(&self.0)
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &self.0
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        &mut self.0
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        Box::new(self.0)
    }

    fn is_transient_in_connect_phase(&self) -> bool {
        self.0.is_transient_in_connect_phase()
    }

    fn constraint(&self) -> Option<&str> {
        self.0.constraint()
    }

    fn table(&self) -> Option<&str> {
        self.0.table()
    }

    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}
