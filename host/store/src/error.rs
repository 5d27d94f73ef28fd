//! What can go wrong with a database.

/// A database did not do what it was asked. Statements are whole: nothing is half-done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The address is not one of ours.
    #[error("`{url}` is not a database address; {hint}")]
    Url {
        /// The address, without its password.
        url: String,
        /// What is expected.
        hint: String,
    },
    /// A parameter of the address has no effect.
    #[error("the database address `{url}` has the parameter `{parameter}`, which is not supported; {hint}")]
    Parameter {
        /// The address, without its password.
        url: String,
        /// The parameter's name.
        parameter: String,
        /// What to do.
        hint: String,
    },
    /// The address cannot be read from where it is kept.
    #[error("the database address cannot be read: {0}")]
    AddressUnread(String),
    /// The server refuses the user or the password, which it accepted before.
    #[error(
        "the server refuses the user or the password of the database address, so the host cannot {action}; it tries again. A password \
         in a file or from a command is read again; after any other change, restart the host"
    )]
    LoginRefused {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The database cannot be opened or reached.
    #[error("the database {database} cannot be opened: {why}")]
    Unreachable {
        /// Which one.
        database: String,
        /// Why, and what to do.
        why: String,
        /// What the driver said.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// The SQLite file, or its `-wal`, is no longer where the store opened it. Nothing was read or written.
    #[error("{why} ({file}). {advice}")]
    Moved {
        /// Which of the two.
        file: String,
        /// What happened to it.
        why: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Somebody else holds a lock for too long.
    #[error("the database is locked by another program while trying to {action}")]
    Locked {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// While outcomes were stored, partitions of their events got other owners again and again: more often than hosts that follow
    /// the rules can bring about. Nothing was written.
    #[error(
        "the database could not {action}: partitions of these {outcomes} events changed their owners at each of the attempts, so \
         nothing was written, and the events are delivered again; if this goes on, find out who changes the table of the partitions"
    )]
    PartitionsMoved {
        /// What was being done.
        action: &'static str,
        /// How many outcomes were to be stored; there was one attempt more.
        outcomes: usize,
    },
    /// The schema cannot be changed while somebody uses the tables.
    #[error(
        "the schema of {table} cannot be changed now: another program uses its tables and does not let go; end its transaction (a \
         backup, a console that was left open), then run the command again. What was asked for is not done"
    )]
    InUse {
        /// The table.
        table: String,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The file takes no writes.
    #[error("the database is read-only, so the host cannot {action}; make the file and its directory writable for this user")]
    ReadOnly {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The server is a standby, or was made read-only.
    #[error(
        "the server takes no writes now, so the host cannot {action}: it is a standby, or read-only; the host connects anew \
         until it finds the primary, so let the address lead there"
    )]
    Standby {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// A standby, or a server that is read-only, has answered a read. What it shows may be old.
    #[error(
        "cannot {action}: a standby or read-only server answered ({server}), and what it shows may be old; route every statement of this \
         user to the primary: no splitting of reads, and an address that leads to the primary alone"
    )]
    StaleRead {
        /// The action that needed the read.
        action: &'static str,
        /// The server that answered, or the database if the server does not say who it is.
        server: String,
    },
    /// The connection to the server was lost, or the server is starting or stopping.
    #[error("the connection to the database was lost while trying to {action}; the host opens another by itself")]
    Disconnected {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// A statement that was prepared before is no longer valid: somebody altered the table, or a pooler stands between.
    #[error(
        "a statement that was prepared to {action} is no longer valid, because the table was altered, or a pooler handed out \
         another session; it is prepared anew"
    )]
    Outdated {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The server gives this user no further connection.
    #[error(
        "the server gives this user no further connection to {action}; raise its max_connections, or the limit of the user or the database, \
         or let the host open fewer"
    )]
    TooManyConnections {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// A setting of the server, which the host cannot override, refuses the statement.
    #[error("a setting of the server does not let the host {action}; {fix}")]
    Setting {
        /// The refused action.
        action: &'static str,
        /// The correction of the setting.
        fix: &'static str,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// The server ended a statement that took too long.
    #[error("the database did not {action} within the statement timeout; find out what slows it down")]
    TimedOut {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The user lacks a right.
    #[error("this database user may not {action}; give it the rights that `outbox doctor --grants` prints")]
    Forbidden {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The schema that the table should be in does not exist.
    #[error("the schema {schema} does not exist; let a DBA run: CREATE SCHEMA {schema}")]
    NoNamespace {
        /// Its name.
        schema: String,
    },
    /// No room left.
    #[error("no space is left for the database to {action}; free some, the host goes on by itself")]
    Full {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// There is another table of this name.
    #[error(
        "the table {table}, or a table whose name begins like that, exists and no outbox made it; give the outbox another table name, or \
         another database"
    )]
    NotOurs {
        /// The table.
        table: String,
    },
    /// The table was made by a build from before the first release, whose schema was another.
    #[error(
        "the table {table} was created by an earlier build of this program, from before its first release, and cannot be migrated; \
         delete it and its events with `outbox migrate reset`, or give the outbox another database or table name"
    )]
    EarlierBuild {
        /// The table.
        table: String,
    },
    /// The table is partitioned, or other tables inherit from it.
    #[error(
        "the table {table} is partitioned, has child tables, or is no ordinary table, and a host would change rows of the other tables; \
         detach these (ALTER TABLE … NO INHERIT {table}), or make {table} an ordinary table again"
    )]
    ChildTables {
        /// The table.
        table: String,
    },
    /// The schema is not there.
    #[error("the table {table} is not there; run `outbox migrate up`")]
    NoSchema {
        /// The table.
        table: String,
    },
    /// The tables are there, and the rows that say which version they have are not.
    #[error(
        "the tables of {table} are there, but {table}_migration has no row, so their version is unknown: the table was emptied by hand; \
         run `outbox migrate up`, which checks the tables, writes the row, and deletes no event"
    )]
    NoVersion {
        /// The table.
        table: String,
    },
    /// An index is not there, or was not built to its end.
    #[error(
        "the table {table} lacks the index `{index}`, or it was not built to its end; run `outbox migrate add-index {index}`"
    )]
    NoIndex {
        /// The table.
        table: String,
        /// [`Index::as_str`](super::Index::as_str).
        index: &'static str,
    },
    /// The schema is older than this program.
    #[error("the schema of {table} is at version {found}, but this program needs {wanted}; run `outbox migrate up`")]
    SchemaOlder {
        /// The table.
        table: String,
        /// What the database has.
        found: u32,
        /// What we need.
        wanted: u32,
    },
    /// The schema is newer than this program.
    #[error("the schema of {table} is at version {found}, this program knows only {wanted}; use a newer outbox")]
    SchemaNewer {
        /// The table.
        table: String,
        /// What the database has.
        found: u32,
        /// What we know.
        wanted: u32,
    },
    /// The session of this host no longer holds its lock.
    #[error("the session of this host no longer holds its lock: {why}; the host takes it again by itself")]
    SessionLost {
        /// What may have happened.
        why: String,
    },
    /// A row cannot be read.
    #[error("row {sequence} of the outbox cannot be read: {why}")]
    Row {
        /// Its `seq`.
        sequence: u64,
        /// The column and what is wrong with it.
        why: String,
    },
    /// The file is damaged, or no database at all.
    #[error("the database file is damaged or not a database ({action}); restore it from a backup")]
    Corrupt {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The store was closed.
    #[error("the store is closed; open it again to {action}")]
    Closed {
        /// What was being done.
        action: &'static str,
    },
    /// Anything else.
    #[error("the database could not {action}")]
    Failed {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
}

impl StoreError {
    /// The kind of error, by a stable code for metrics: `locked`, `disconnected`, `timed_out`. What has no kind of its own is
    /// `failed`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Url { .. } | Self::Parameter { .. } | Self::AddressUnread(_) => "url",
            Self::LoginRefused { .. } => "login_refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Moved { .. } => "moved",
            Self::Locked { .. } | Self::InUse { .. } => "locked",
            Self::PartitionsMoved { .. } => "partitions_moved",
            Self::ReadOnly { .. } => "read_only",
            Self::Standby { .. } => "standby",
            Self::StaleRead { .. } => "stale_read",
            Self::Disconnected { .. } => "disconnected",
            Self::Outdated { .. } => "outdated",
            Self::TooManyConnections { .. } => "too_many_connections",
            Self::Setting { .. } => "setting",
            Self::TimedOut { .. } => "timed_out",
            Self::Forbidden { .. } => "forbidden",
            Self::Full { .. } => "full",
            Self::NotOurs { .. } | Self::EarlierBuild { .. } | Self::ChildTables { .. } => "not_ours",
            Self::NoNamespace { .. } | Self::NoSchema { .. } | Self::NoVersion { .. } => "no_schema",
            Self::NoIndex { .. } => "no_index",
            Self::SchemaOlder { .. } => "schema_older",
            Self::SchemaNewer { .. } => "schema_newer",
            Self::SessionLost { .. } => "session_lost",
            Self::Row { .. } => "row",
            Self::Corrupt { .. } => "corrupt",
            Self::Closed { .. } => "closed",
            Self::Failed { .. } => "failed",
        }
    }

    /// Whether the schema is missing or of another version than this program's.
    #[doc(hidden)] // for the host
    #[must_use]
    pub const fn is_of_schema(&self) -> bool {
        matches!(
            self,
            Self::NoNamespace { .. }
                | Self::NoSchema { .. }
                | Self::NoIndex { .. }
                | Self::NotOurs { .. }
                | Self::EarlierBuild { .. }
                | Self::ChildTables { .. }
                | Self::SchemaOlder { .. }
                | Self::SchemaNewer { .. }
        )
    }

    /// Whether the same call may succeed later without anybody changing the program or its configuration.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Locked { .. }
            | Self::Moved { .. }
            | Self::PartitionsMoved { .. }
            | Self::InUse { .. }
            | Self::Full { .. }
            | Self::ReadOnly { .. }
            | Self::Standby { .. }
            | Self::StaleRead { .. }
            | Self::Disconnected { .. }
            | Self::LoginRefused { .. }
            | Self::Outdated { .. }
            | Self::TooManyConnections { .. }
            | Self::Setting { .. }
            | Self::TimedOut { .. }
            | Self::SessionLost { .. } => true,
            Self::Unreachable { source, .. } => source.as_ref().is_some_and(may_be_back),
            Self::Failed { source, .. } => {
                matches!(source, sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed)
            }
            _ => false,
        }
    }

    /// Whether the error may concern single rows, so that the same statement may succeed for other rows: a constraint, a trigger, a
    /// policy, a text that the table cannot store, a damaged row.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn may_concern_rows(&self) -> bool {
        matches!(self, Self::Forbidden { .. } | Self::Corrupt { .. } | Self::Failed { .. }) && !self.is_transient()
    }

    /// Whether the pool gave no connection in time: all are taken, or it cannot connect. The pool retries refused connections and a
    /// full or starting server until this timeout.
    #[doc(hidden)] // for the host
    #[must_use]
    pub const fn is_pool_exhausted(&self) -> bool {
        matches!(self, Self::Failed { source: sqlx::Error::PoolTimedOut, .. })
    }

    /// Whether the database could not be asked at all.
    #[doc(hidden)] // for the dashboard
    #[must_use]
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Disconnected { .. }
            | Self::LoginRefused { .. }
            | Self::Unreachable { .. }
            | Self::Moved { .. }
            | Self::TooManyConnections { .. }
            | Self::Closed { .. } => true,
            Self::Failed { source, .. } => {
                matches!(source, sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed)
            }
            _ => false,
        }
    }
}

/// Whether a server answers, but not by a TLS that both sides accept. The driver tells of a certificate that it does not trust
/// as of an error of I/O with bad data.
pub(super) fn is_of_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// Whether a database that could not be opened may be there a little later: a wrong password, a missing file or a certificate
/// that nobody trusts will not.
fn may_be_back(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => !is_of_tls(error),
        // PostgreSQL is starting, stopping or full; MySQL is full, or shutting down; SQLite's file is locked.
        sqlx::Error::Database(error) => matches!(
            error.code().as_deref(),
            Some("57P01" | "57P02" | "57P03" | "53300" | "08004" | "08S01" | "5" | "261" | "517")
        ),
        _ => false,
    }
}
