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
    /// Somebody else holds a lock for too long.
    #[error("the database is locked by another program while trying to {action}; it is tried again")]
    Locked {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The database takes no writes.
    #[error("the database is read-only, so the host cannot {action}; {fix}")]
    ReadOnly {
        /// What was being done.
        action: &'static str,
        /// What to do about it.
        fix: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
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
    /// The server or something on the way to it cut the connection.
    #[error("the connection to the database was lost while trying to {action}; another one is made, and it is tried again")]
    Lost {
        /// What was being done.
        action: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// There is another table of this name.
    #[error("the table {table} is there, but no outbox made it; give the outbox another table name, or another database")]
    NotOurs {
        /// The table.
        table: String,
    },
    /// The schema is not there.
    #[error("the table {table} is not there; run `outbox migrate up`, or start with --migrate")]
    NoSchema {
        /// The table.
        table: String,
    },
    /// The schema is older than this program.
    #[error("the schema of {table} is at version {found}, this program needs {wanted}; run `outbox migrate up`")]
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
    /// Whether the same call may succeed later without anybody changing the program or its configuration.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::Full { .. } | Self::ReadOnly { .. } | Self::Lost { .. } | Self::Unreachable { .. } => {
                true
            }
            Self::Failed { source, .. } => {
                matches!(source, sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed)
            }
            _ => false,
        }
    }
}
