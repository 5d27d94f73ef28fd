//! The schema: its steps, and whether the database has them.

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use serde::Serialize;
use sqlx::ColumnIndex;

use super::row::{Columns, filled};
use super::{Index, StoreError, TableName};

/// The tables: whether they are there, how they came to be, and who may use them.
#[async_trait]
pub trait SchemaStore: Send + Sync {
    /// The table as it is written into a console of this database, whatever schema that looks in first: `billing.outbox_event`.
    async fn table_in_full(&self) -> Result<String, StoreError>;

    /// Checks that the schema is there and of our version.
    ///
    /// # Errors
    /// [`StoreError::NoSchema`], [`StoreError::NotOurs`], [`StoreError::NoVersion`], [`StoreError::SchemaOlder`],
    /// [`StoreError::SchemaNewer`], [`StoreError::ChildTables`], or the database's own.
    async fn check_schema(&self) -> Result<(), StoreError>;

    /// Every step of the schema, applied or not, in order.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrations(&self) -> Result<Vec<Migration>, StoreError>;

    /// Applies every step that is missing, each in one transaction; safe to repeat and to race. Inserts missing rows of the partition
    /// table, and deletes surplus ones. Returns the steps applied. If the tables are there, and only the rows that note the steps were
    /// deleted, it notes the steps anew, and returns them.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`]; [`StoreError::NotOurs`] if something else has the name of a table;
    /// [`StoreError::EarlierBuild`] if the rows that note the steps were deleted, and the tables are not those of the newest step;
    /// [`StoreError::InUse`] when another program uses the tables for longer than a few seconds, and every later user would have to
    /// wait for it; or the database's own.
    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError>;

    /// Takes back the newest step **with its data**. Returns it, or `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], [`StoreError::InUse`], or the database's own.
    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError>;

    /// Drops the tables **with their data**, those of an earlier build as well, and creates them anew. Returns the steps applied. Stop all
    /// hosts first: the numbers of events begin anew, so that an outcome that a host stores late may end another event.
    ///
    /// # Errors
    /// [`StoreError::NotOurs`] if no outbox created the tables, or something else has the name of one; [`StoreError::SchemaNewer`],
    /// [`StoreError::InUse`], or the database's own.
    async fn migrate_reset(&self) -> Result<Vec<Migration>, StoreError>;

    /// Deletes all events, routes, pauses, audit records, state of plugins, and hosts that are gone, in one transaction: for test suites.
    /// Live hosts keep their rows and their partitions, so they deliver the next event as usual. Numbers of events are not used again, so
    /// an outcome that a host stores late finds no event. On PostgreSQL, MySQL and MariaDB it waits for open transactions that wrote
    /// events, for a few seconds; SQLite has one writer at a time. Returns how many events were deleted.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Forbidden`], or the database's own. Then nothing was deleted, and a repeat is safe.
    async fn empty_tables(&self) -> Result<u64, StoreError>;

    /// Creates an index if it is not there or was not built to its end. Returns whether it was created. PostgreSQL, MySQL and MariaDB let
    /// others write to a large table meanwhile. On PostgreSQL it waits without a limit until older transactions end.
    ///
    /// # Errors
    /// [`StoreError::InUse`], or the database's own. After an error, call it again.
    async fn add_index(&self, index: Index) -> Result<bool, StoreError>;

    /// Checks that an index is there, or that this database needs none.
    ///
    /// # Errors
    /// [`StoreError::NoIndex`], or the database's own.
    async fn check_index(&self, index: Index) -> Result<(), StoreError>;

    /// The text of every step, and of an index, as a DBA would run it.
    fn migration_sql(&self, index: Option<Index>) -> String;

    /// SQL that gives the least rights to roles named `outbox_migrator`, `outbox_writer`, `outbox_dispatcher` and
    /// `outbox_viewer`, as a DBA would run it; a comment alone where the database has no roles.
    fn grants_sql(&self) -> String;
}

/// One step of the schema.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Migration {
    /// Its number, from 1.
    pub version: u32,
    /// Its name.
    pub name: &'static str,
    /// When it was applied; `None` when it was not.
    pub applied_at: Option<Timestamp>,
}

/// One step of the schema, as the statements of a database.
pub(super) struct Step {
    pub(super) version: u32,
    pub(super) name: &'static str,
    pub(super) up: &'static str,
    pub(super) down: &'static str,
    /// A query that fails on the tables of every step before this one.
    pub(super) probe: &'static str,
}

/// How many tables and views the steps make, without the table of notes.
pub(super) const TABLES_AND_VIEWS: u64 = 9;

/// Whether the tables are there although no step is noted. `objects` is how many of [`TABLES_AND_VIEWS`] are there.
pub(super) fn has_lost_notes(history: &History<'_>, objects: u64) -> bool {
    history.is_empty() && objects == TABLES_AND_VIEWS
}

/// The action of [`SchemaStore::empty_tables`].
pub(super) const EMPTY: &str = "delete all events";

/// What a lock that was not had in time means to somebody who changes the schema: nobody tries again by himself.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn in_use(table: &TableName, error: StoreError) -> StoreError {
    match error {
        StoreError::Locked { source, .. } => StoreError::InUse { table: table.to_string(), source },
        error => error,
    }
}

/// The error when the probe of a step fails on tables whose notes were lost.
pub(super) fn of_another_build(table: &TableName, error: StoreError) -> StoreError {
    if error.is_transient() { error } else { StoreError::EarlierBuild { table: table.to_string() } }
}

/// How a database notes a step, before the values.
const NOTE: &str = "INSERT INTO outbox_event_migration (version, name, applied_at)";

/// Forgets that there ever was a step.
pub(super) const FORGET_ALL: &str = "DROP TABLE IF EXISTS outbox_event_migration";

/// All steps as text, with the notes of what was applied, and what creates an index: run by hand, they make a schema that
/// [`History::check`] accepts. `index` is a statement whose names are those of this table, `history` makes the table of notes, `now`
/// is the time in SQL, and `named` puts the name of the table into a statement.
pub(super) fn text(
    steps: &[Step],
    index: Option<String>,
    history: &'static str,
    now: &str,
    named: impl Fn(&'static str) -> String,
) -> String {
    let (mut text, note) = (format!("{};\n", named(history).trim()), named(NOTE));
    for Step { version, name, up, .. } in steps {
        text.push_str(&format!("\n{}\n\n{note} VALUES ({version}, '{name}', {now});\n", named(up).trim_end()));
    }
    if let Some(index) = index {
        text.push_str(&format!("\n{index};\n"));
    }
    text
}

/// Whether an outbox of this build or of an earlier one left notes.
///
/// # Errors
/// [`StoreError::SchemaNewer`], or the error of reading the notes.
pub(super) fn has_notes(history: Result<History<'_>, StoreError>) -> Result<bool, StoreError> {
    match history.and_then(History::known) {
        Ok(history) => Ok(!history.is_empty()),
        Err(StoreError::EarlierBuild { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Which steps a database has, as it notes them itself.
pub(super) struct History<'t> {
    steps: &'static [Step],
    table: &'t TableName,
    applied: Vec<(u32, Timestamp)>,
}

impl<'t> History<'t> {
    /// What these notes say: rows of version, time and name, in the order of the versions; none where there is no table of notes.
    ///
    /// # Errors
    /// The first error is the driver's. The second is [`StoreError::EarlierBuild`] where a step has another name than ours.
    pub(super) fn read<R: Columns>(
        steps: &'static [Step],
        table: &'t TableName,
        notes: &[R],
    ) -> Result<Result<Self, StoreError>, sqlx::Error>
    where
        usize: ColumnIndex<R>,
    {
        let mut applied = Vec::with_capacity(notes.len());
        for note in notes {
            let version = note.integer(0)?.and_then(|version| u32::try_from(version).ok()).unwrap_or(u32::MAX);
            let (at, name) = (filled(1, note.time(1))?, note.text(2)?);
            if steps.iter().any(|step| step.version == version && Some(step.name) != name) {
                return Ok(Err(StoreError::EarlierBuild { table: table.to_string() }));
            }
            applied.push((version, at));
        }
        Ok(Ok(Self { steps, table, applied }))
    }

    fn wanted(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.version)
    }

    fn found(&self) -> u32 {
        self.applied.last().map_or(0, |(version, _)| *version)
    }

    /// Whether no step was applied.
    pub(super) fn is_empty(&self) -> bool {
        self.applied.is_empty()
    }

    /// Whether the schema is there and of our version.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let (table, found, wanted) = (self.table.to_string(), self.found(), self.wanted());
        match found {
            0 => Err(StoreError::NoSchema { table }),
            found if found < wanted => Err(StoreError::SchemaOlder { table, found, wanted }),
            found if found > wanted => Err(StoreError::SchemaNewer { table, found, wanted }),
            _ => Ok(()),
        }
    }

    /// Refuses tables that another program created, where a step is whole or not there at all. `objects` is how many of
    /// [`TABLES_AND_VIEWS`] exist.
    ///
    /// # Errors
    /// [`StoreError::NotOurs`] if some of them exist, and no step is noted.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn refuse_foreign(&self, objects: u64) -> Result<(), StoreError> {
        if self.is_empty() && (1..TABLES_AND_VIEWS).contains(&objects) {
            return Err(StoreError::NotOurs { table: self.table.to_string() });
        }
        Ok(())
    }

    /// Refuses a step that is newer than this program.
    pub(super) fn known(self) -> Result<Self, StoreError> {
        let (found, wanted) = (self.found(), self.wanted());
        if found > wanted {
            return Err(StoreError::SchemaNewer { table: self.table.to_string(), found, wanted });
        }
        Ok(self)
    }

    fn at(&self, step: &Step) -> Option<Timestamp> {
        self.applied.iter().find(|(version, _)| *version == step.version).map(|(_, at)| *at)
    }

    /// Every step, applied or not.
    pub(super) fn migrations(&self) -> Vec<Migration> {
        self.steps.iter().map(|step| Migration { version: step.version, name: step.name, applied_at: self.at(step) }).collect()
    }

    /// The steps that are missing, in order.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'static Step> {
        self.steps.iter().filter(|step| self.at(step).is_none())
    }

    /// The newest step of this program.
    pub(super) fn last(&self) -> Option<&'static Step> {
        self.steps.last()
    }

    /// The step to take back, as it was applied, and whether it is the only one; `None` when there is none.
    pub(super) fn newest(&self) -> Option<(&'static Step, Migration, bool)> {
        let (version, at) = *self.applied.last()?;
        let step = self.steps.iter().find(|step| step.version == version)?;
        let migration = Migration { version, name: step.name, applied_at: Some(at) };
        Some((step, migration, self.applied.len() == 1))
    }
}
