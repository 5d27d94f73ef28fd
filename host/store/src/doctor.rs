//! What a look at the database finds.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use outbox_event::time::system_clock;
use serde::Serialize;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::Store;
use super::{Index, PARTITIONS, PartitionStore, SchemaStore, StoreError};

/// Looking at the server, its settings, the schema and the connection, for `outbox doctor`.
#[async_trait]
pub trait DoctorStore: Send + Sync {
    /// Looks at the server, its settings, the schema and the connection, for `outbox doctor`. One finding for each thing that
    /// was looked at, good ones included.
    ///
    /// # Errors
    /// When the database cannot even be asked; what can be looked at alone becomes a finding instead.
    async fn diagnose(&self, expectations: &Expectations) -> Result<Vec<Finding>, StoreError>;

    /// The sequences that are behind the numbers in their tables, without those that this user may not read. Always empty for a database
    /// without sequences. Reads the end of an index for each table.
    ///
    /// # Errors
    /// The database's own.
    async fn lagging_sequences(&self) -> Result<Vec<LaggingSequence>, StoreError> {
        Ok(Vec::new())
    }
}

/// A sequence that is behind the numbers in its table: an INSERT fails where the sequence gives a number that is taken. Sequences are not
/// replicated, so this happens after a switchover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggingSequence {
    /// The table.
    pub table: String,
    /// The column that the sequence numbers.
    pub column: String,
    /// The largest number in the table.
    pub largest: i64,
    /// The number that the sequence gives next.
    pub next: i64,
}

impl LaggingSequence {
    /// The statement that moves the sequence behind the largest number.
    #[must_use]
    pub fn fix(&self) -> String {
        Self::move_up(&self.table, &self.column)
    }

    pub(super) fn move_up(table: &str, column: &str) -> String {
        format!("SELECT setval(pg_get_serial_sequence('{table}', '{column}'), (SELECT max({column}) FROM {table}))")
    }
}

/// `TABLE.COLUMN goes up to N, but its sequence gives M next`, and what follows from that.
impl fmt::Display for LaggingSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, column, largest, next } = self;
        write!(
            f,
            "{table}.{column} goes up to {largest}, but its sequence gives {next} next: an INSERT fails where it gives a number that is taken, \
             with the transaction around it"
        )
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Good,
    /// It works, and something about it will hurt.
    Warning,
    /// It does not work, or loses events.
    Fault,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at: a stable name such as `schema` or `synchronous_commit`.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub found: String,
    /// What to do about it; `None` when it is good.
    pub fix: Option<String>,
    /// How many events it affects. A fault affects all of them, `u64::MAX`, unless they were counted.
    #[serde(skip)]
    pub events: u64,
}

impl Finding {
    /// As it should be.
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, severity: Severity::Good, found: found.into(), fix: None, events: 0 }
    }

    /// A problem of this severity.
    pub fn problem(
        severity: Severity,
        check: &'static str,
        found: impl Into<String>,
        fix: impl Into<String>,
        events: u64,
    ) -> Self {
        Self { check, severity, found: found.into(), fix: Some(fix.into()), events }
    }

    /// It works, and will hurt.
    pub fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::problem(Severity::Warning, check, found, fix, 0)
    }

    /// It does not work.
    pub fn fault(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::problem(Severity::Fault, check, found, fix, u64::MAX)
    }
}

/// What a host expects of its database.
#[derive(Clone, Copy, Debug)]
pub struct Expectations {
    /// How long its claims hold.
    pub lease: Duration,
    /// How long one listener may take.
    pub deadline: Duration,
    /// The largest payload that a writer may write, in bytes.
    pub max_payload: usize,
    /// Connections that the host may open.
    pub connections: u32,
    /// The index that its mode needs.
    pub index: Option<Index>,
}

/// What looking for the schema came to: its faults are findings, all else is an error.
pub(super) fn schema(checked: Result<(), StoreError>) -> Result<Finding, StoreError> {
    match checked {
        Ok(()) => Ok(Finding::good("schema", "the schema is there, of this program's version")),
        Err(error @ (StoreError::NoSchema { .. } | StoreError::NoVersion { .. } | StoreError::SchemaOlder { .. })) => {
            Ok(Finding::fault("schema", error.to_string(), "outbox migrate up"))
        }
        Err(error @ StoreError::SchemaNewer { .. }) => {
            Ok(Finding::fault("schema", error.to_string(), "use the outbox that made it, or a newer one"))
        }
        Err(error @ StoreError::NotOurs { .. }) => {
            let fix = "set another name as database.table, or another database in the address";
            Ok(Finding::fault("schema", error.to_string(), fix))
        }
        Err(error @ StoreError::ChildTables { .. }) => {
            let fix =
                "let no table inherit from it: ALTER TABLE … NO INHERIT, or a copy of its rows in a table without partitions";
            Ok(Finding::fault("schema", error.to_string(), fix))
        }
        Err(error @ StoreError::Forbidden { .. }) => Ok(Finding::fault("schema", error.to_string(), GRANT)),
        Err(error @ StoreError::StaleRead { .. }) => Ok(Finding::fault("schema", error.to_string(), ASK_PRIMARY)),
        Err(error) => Err(error),
    }
}

/// Whether the index that the host's mode needs is there; `None` where it needs none.
pub(super) async fn index(store: &impl SchemaStore, expectations: &Expectations) -> Result<Option<Finding>, StoreError> {
    let Some(index) = expectations.index else { return Ok(None) };
    let name = index.as_str();
    Ok(Some(match store.check_index(index).await {
        Ok(()) => Finding::good("indexes", format!("the index that the mode {name} needs is there")),
        Err(error @ StoreError::NoIndex { .. }) => {
            Finding::fault("indexes", error.to_string(), format!("outbox migrate add-index {name}"))
        }
        Err(error) => return Err(error),
    }))
}

/// Whether the partition table is as hosts leave it.
pub(super) async fn partitions(store: &impl PartitionStore) -> Result<Finding, StoreError> {
    let faults = match store.partition_faults().await {
        Ok(faults) => faults,
        Err(error @ StoreError::Forbidden { .. }) => return Ok(Finding::fault("partitions", error.to_string(), GRANT)),
        Err(error @ StoreError::StaleRead { .. }) => {
            return Ok(Finding::fault("partitions", error.to_string(), ASK_PRIMARY));
        }
        Err(error) => return Err(error),
    };
    Ok(if faults.is_empty() {
        Finding::good("partitions", format!("all {PARTITIONS} are there"))
    } else {
        Finding::fault("partitions", format!("the partition table was changed by hand: {faults}"), "outbox migrate up")
    })
}

/// The number of new connections on which the doctor reads. Of two servers that are chosen at random, eight reads miss one in 1 of 256
/// runs.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const READS: usize = 8;

/// The action in errors of these reads.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const LOOK: &str = "see which server answers reads";

/// The finding for these reads: whether the primary answered all of them.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn reads(answered: Result<(), StoreError>) -> Result<Finding, StoreError> {
    match answered {
        Ok(()) => Ok(Finding::good("reads", "the primary answers reads")),
        Err(StoreError::StaleRead { server, .. }) => {
            Ok(Finding::fault("reads", format!("a standby answers reads ({server}), so hosts refuse them"), ASK_PRIMARY))
        }
        Err(error) => Err(error),
    }
}

/// The finding for the settings that a session of the host has lost, each with its value.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn session(lost: &[String]) -> Finding {
    const CHECK: &str = "session";
    if lost.is_empty() {
        Finding::good(CHECK, "sessions of the host have every setting that its statements rely on")
    } else {
        let found = format!("a session of the host lacks settings that its statements rely on: {}", lost.join(", "));
        Finding::fault(CHECK, found, "let the proxy in between pass SET on, or let the host connect to the server itself")
    }
}

/// The fix when a standby answers.
const ASK_PRIMARY: &str = "route every statement of this user to the primary: disable the splitting of reads for it, or use the primary's \
                           own address";

/// What an account that lacks rights needs.
pub(super) const GRANT: &str = "run what `outbox doctor --grants` prints, then: GRANT outbox_dispatcher TO this user\n\
     or, for a service that only writes: grant it outbox_writer, and do not run this check with it";

/// How far the clocks of this machine and of the server may be apart.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Whether the server's clock agrees with this machine's.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn clock(store: &impl Store) -> Result<Finding, StoreError> {
    let clock = system_clock();
    // The first call may have to open a connection.
    store.now().await?;
    let before = clock.now();
    let server = store.now().await?;
    let after = clock.now();
    let middle = before.plus(after.since(before) / 2);
    let (apart, way) = if server > middle { (server.since(middle), "ahead of") } else { (middle.since(server), "behind") };
    let found = format!("the server's clock is {} ms {way} this machine's", apart.as_millis());
    Ok(if apart <= CLOCKS_APART {
        Finding::good("clock", found)
    } else {
        let fix = "let NTP set the clocks of both (timedatectl set-ntp true): times that a writer sets are by its own clock";
        Finding::warning("clock", found, fix)
    })
}

/// What is said of an index that is missing, which no statement names.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn missing_index(name: &str) -> Finding {
    Finding::fault(
        "indexes",
        format!("the index {name} is missing, so the host reads the whole table again and again"),
        format!("make it as `outbox migrate sql` prints it: CREATE INDEX {name} …"),
    )
}

/// Whether a call may outlive its claim.
pub(super) fn lease(expectations: &Expectations) -> Finding {
    let Expectations { lease, deadline, .. } = expectations;
    if deadline < lease {
        let what = format!(
            "in this configuration claims hold for {lease:?}, and listeners are cut off after {deadline:?}; a plugin has a deadline of its own, limits.deadline"
        );
        Finding::good("lease", what)
    } else {
        Finding::fault(
            "lease",
            format!("listeners may take {deadline:?}, but claims hold for {lease:?} only"),
            "set dispatcher.deadline below dispatcher.lease",
        )
    }
}
