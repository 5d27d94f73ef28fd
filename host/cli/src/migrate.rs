//! `outbox migrate`: the schema, step by step.

use clap::{Subcommand, ValueEnum};
use outbox::store::{Audit, Index, Migration, NodeRecord, hide_password};
use outbox::{Mode, Store, StoreError};

use crate::config::{Config, Kind, user_name};
use crate::database::{self, Missing};
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, span};

#[derive(Subcommand, Debug)]
pub(crate) enum MigrateCommand {
    /// Apply all missing migrations and add the index that the configured mode needs; creates the SQLite file if it does not exist
    #[command(
        after_help = "Examples:\n  outbox migrate up --database-url sqlite:shop.db\n  outbox migrate up --database-url postgres://migrator@db/shop"
    )]
    Up {
        #[command(flatten)]
        output: Output,
    },
    /// Revert the newest migration and delete its data
    #[command(after_help = "Example:\n  outbox migrate down --yes")]
    Down {
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Delete all tables of the outbox with their events and the audit log, including those of an earlier build, and create them again
    #[command(after_help = "Example:\n  outbox migrate reset --yes")]
    Reset {
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Add an optional index; on SQLite, writers wait until it is built
    #[command(
        after_help = "Examples:\n  outbox migrate add-index aggregate\n  outbox migrate add-index ordered_by_aggregate\n\n\
                      Each index makes every event more expensive. On a large table, building it takes minutes."
    )]
    AddIndex {
        /// The index to add
        index: IndexName,
    },
    /// Show which migrations were applied; exits with 8 if some, or the index of the mode, are missing
    #[command(after_help = "Example:\n  outbox migrate status --output json")]
    Status {
        #[command(flatten)]
        output: Output,
    },
    /// Print the schema as SQL, with the index that the configured mode needs, for a database administrator; does not connect to any database
    #[command(after_help = "Examples:\n  outbox migrate sql > outbox.sql\n  outbox migrate sql --db postgres")]
    Sql {
        /// The kind of database; default the configured one
        #[arg(long, value_enum)]
        db: Option<Kind>,
    },
}

impl MigrateCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let shown = hide_password(&config.database.url);
        match self {
            Self::Up { output } => {
                let store = database::open(config, Missing::Create).await?;
                let done = output::busy("applying migrations", up(&*store, config.mode)).await;
                // All of it stands in the file of a SQLite database then, and nothing in its -wal.
                store.close().await;
                let Done { applied, index } = done?;
                let index = index.map(|index| format!("; the index of the mode {} was added", index.as_str()));
                match (applied.is_empty(), index) {
                    (true, None) => eprintln!("{shown} is up to date; nothing to apply"),
                    (true, Some(index)) => eprintln!("{shown} is up to date{index}"),
                    (false, index) => eprintln!("{shown} is up to date{}; applied:", index.unwrap_or_default()),
                }
                output::many(&applied, output.output, |steps| if steps.is_empty() { String::new() } else { table(steps) })
            }
            Self::Down { yes, output } => {
                let store = database::open(config, Missing::Refuse).await?;
                output::confirm(&format!("revert the newest migration of {shown} and delete its data"), yes)?;
                let step = output::busy("reverting the newest migration", store.migrate_down()).await;
                store.close().await;
                let step = step?;
                eprintln!("{}", if step.is_some() { "reverted:" } else { "there is no migration to revert" });
                let steps: Vec<Migration> = step.into_iter().collect();
                output::many(&steps, output.output, |steps| if steps.is_empty() { String::new() } else { table(steps) })
            }
            Self::Reset { yes, output } => {
                let store = database::open(config, Missing::Refuse).await?;
                refuse_under_live_hosts(&*store, config).await?;
                let table_name = &config.database.table;
                let tables = format!(
                    "delete {table_name} and the tables that belong to it, with all events, routes, pauses, audit records and plugin state, \
                     from {shown}"
                );
                output::confirm(&tables, yes)?;
                let done = output::busy("deleting and creating the tables", reset(&*store, config.mode)).await;
                store.close().await;
                let applied = done?;
                eprintln!(
                    "all events of {table_name} deleted from {shown}, with all routes, pauses, audit records and state of plugins; applied:"
                );
                output::many(&applied, output.output, table)?;
                if store.kind() != "sqlite" {
                    eprintln!(
                        "rights on the tables were deleted with them; to grant them again, run the SQL of `outbox doctor --grants`"
                    );
                }
                Ok(())
            }
            Self::AddIndex { index } => {
                let (store, index) = (database::ready(config).await?, index.index());
                let added = output::busy("adding the index", store.add_index(index)).await;
                if matches!(added, Ok(true)) {
                    note(&*store, &Audit::by(user_name()), &[], Some(index)).await;
                }
                let kind = store.kind();
                store.close().await;
                let what = match (added?, index) {
                    (true, _) => "was added",
                    (false, Index::Ordered) if kind == "mysql" => "is not needed on MySQL and MariaDB",
                    (false, _) => "is there already",
                };
                eprintln!("the index {} {what}", index.as_str());
                Ok(())
            }
            Self::Status { output } => {
                let store = database::open(config, Missing::Refuse).await?;
                let steps = store.migrations().await?;
                output::many(&steps, output.output, table)?;
                if steps.iter().any(|step| step.applied_at.is_none()) {
                    eprintln!("some migrations are missing; run `outbox migrate up`");
                    return Err(Failure::silent(Exit::Findings));
                }
                match config.mode.index() {
                    Some(index) => check_index(&*store, index).await,
                    None => Ok(()),
                }
            }
            Self::Sql { db } => {
                let kind = db.map_or_else(|| config.database.kind(), Ok)?;
                output::print(&database::schema_sql(kind, &config.database.table, config.mode)?)
            }
        }
    }
}

/// An index, as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum IndexName {
    /// For searches by aggregate
    Aggregate,
    /// For the mode `ordered`; `migrate up` adds it if that is the configured mode
    Ordered,
    /// For the mode `ordered_by_aggregate`; `migrate up` adds it if that is the configured mode
    OrderedByAggregate,
}

impl IndexName {
    const fn index(self) -> Index {
        match self {
            Self::Aggregate => Index::Aggregate,
            Self::Ordered => Index::Ordered,
            Self::OrderedByAggregate => Index::OrderedByAggregate,
        }
    }
}

/// The changes of one `migrate up`.
struct Done {
    applied: Vec<Migration>,
    index: Option<Index>,
}

async fn up(store: &dyn Store, mode: Mode) -> Result<Done, StoreError> {
    let applied = store.migrate_up().await?;
    let index = match mode.index() {
        Some(index) if store.add_index(index).await? => Some(index),
        _ => None,
    };
    note(store, &Audit::by(user_name()), &applied, index).await;
    Ok(Done { applied, index })
}

/// Records what was migrated in the audit log. If that fails, the schema is what was asked for all the same.
async fn note(store: &dyn Store, audit: &Audit, applied: &[Migration], index: Option<Index>) {
    if let Err(error) = store.note_migration(audit, applied, index).await {
        eprintln!("the audit log does not have this migration: {}", outbox::chain(&error));
    }
}

async fn reset(store: &dyn Store, mode: Mode) -> Result<Vec<Migration>, StoreError> {
    let applied = store.migrate_reset().await?;
    if let Some(index) = mode.index() {
        store.add_index(index).await?;
    }
    let audit = Audit { reason: Some("reset: all tables were deleted with their events".to_owned()), ..Audit::by(user_name()) };
    note(store, &audit, &applied, mode.index()).await;
    Ok(applied)
}

/// Fails with [`Exit::Findings`] if the index is missing.
async fn check_index(store: &dyn Store, index: Index) -> Result<(), Failure> {
    match store.check_index(index).await {
        Err(error @ StoreError::NoIndex { .. }) => Err(Failure::from(error).with_exit(Exit::Findings)),
        checked => Ok(checked?),
    }
}

/// Fails if a host is alive, or its lease has not ended: a reset gives events their numbers anew, and a late outcome could end another event.
async fn refuse_under_live_hosts(store: &dyn Store, config: &Config) -> Result<(), Failure> {
    match store.check_schema().await {
        Ok(()) | Err(StoreError::ChildTables { .. }) => {}
        // The tables of an earlier build may lack columns of the query below.
        Err(error) if error.is_of_schema() || matches!(error, StoreError::NoVersion { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let (now, hosts) = (store.now().await?, outbox::node::hosts(store).await?);
    let table = &config.database.table;
    let names = |nodes: &[&NodeRecord]| nodes.iter().map(|node| node.label.as_str()).collect::<Vec<_>>().join(", ");
    let alive: Vec<&NodeRecord> = hosts.iter().filter(|node| node.alive).collect();
    if !alive.is_empty() {
        let why = format!("hosts work on {table}: {}; stop them first", names(&alive));
        return Err(Failure::new(Exit::Conflict, why));
    }
    // A session can end although its host is alive: only the lease tells when no outcome can arrive any more.
    let killed: Vec<&NodeRecord> = hosts.iter().filter(|node| node.alive_until > now).collect();
    let Some(end) = killed.iter().map(|node| node.alive_until).max() else { return Ok(()) };
    let why = format!(
        "no host is running on {table}, but an outcome of a host that was killed could still arrive: {}; run the command again in {}, \
         when its lease has ended",
        names(&killed),
        span(end.since(now))
    );
    Err(Failure::new(Exit::Conflict, why))
}

fn table(steps: &[Migration]) -> String {
    let rows = steps.iter().map(|step| {
        let applied = step.applied_at.map_or_else(|| "-".to_owned(), |time| time.to_string());
        [step.version.to_string(), step.name.to_owned(), applied]
    });
    output::table(&[">version", "name", "applied at"], rows)
}
