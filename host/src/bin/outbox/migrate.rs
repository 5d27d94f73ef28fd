//! `outbox migrate`: the schema, step by step.

use clap::Subcommand;
use outbox::store::Migration;

use crate::config::{Config, hide_password};
use crate::database::{self, Kind, Missing};
use crate::failure::{Exit, Failure};
use crate::output::{self, Output};

#[derive(Subcommand, Debug)]
pub(crate) enum MigrateCommand {
    /// Bring the schema up to date; makes a SQLite file that is not there
    #[command(
        after_help = "Examples:\n  outbox migrate up --database-url sqlite:shop.db\n  outbox migrate up --database-url postgres://migrator@db/shop"
    )]
    Up {
        #[command(flatten)]
        output: Output,
    },
    /// Take back the newest step, with all its data
    #[command(after_help = "Example:\n  outbox migrate down --yes")]
    Down {
        /// Do it without a question
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show which steps were applied; exit code 8 when some are missing
    #[command(after_help = "Example:\n  outbox migrate status --output json")]
    Status {
        #[command(flatten)]
        output: Output,
    },
    /// Print the schema as SQL, for a database administrator; touches no database
    #[command(after_help = "Examples:\n  outbox migrate sql > outbox.sql\n  outbox migrate sql --db postgres")]
    Sql {
        /// For which database; default: that of the configuration
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
                let applied = store.migrate_up().await?;
                if applied.is_empty() {
                    eprintln!("{shown} is up to date; nothing to do");
                } else {
                    eprintln!("{shown} is up to date; applied:");
                }
                output::many(&applied, output.output, |steps| if steps.is_empty() { String::new() } else { table(steps) })
            }
            Self::Down { yes, output } => {
                let store = database::open(config, Missing::Refuse).await?;
                output::confirm(&format!("take back the newest step of {shown} and delete its data"), yes)?;
                let step = store.migrate_down().await?;
                eprintln!("{}", if step.is_some() { "taken back:" } else { "there is no step to take back" });
                let steps: Vec<Migration> = step.into_iter().collect();
                output::many(&steps, output.output, |steps| if steps.is_empty() { String::new() } else { table(steps) })
            }
            Self::Status { output } => {
                let store = database::open(config, Missing::Refuse).await?;
                let steps = store.migrations().await?;
                output::many(&steps, output.output, table)?;
                if steps.iter().any(|step| step.applied_at.is_none()) {
                    eprintln!("some steps are missing; run `outbox migrate up`");
                    return Err(Failure::silent(Exit::Findings));
                }
                Ok(())
            }
            Self::Sql { db } => {
                let kind = db.map_or_else(|| database::kind(&config.database.url), Ok)?;
                output::print(&database::schema_sql(kind, &config.database.table))
            }
        }
    }
}

fn table(steps: &[Migration]) -> String {
    let rows = steps.iter().map(|step| {
        let applied = step.applied_at.map_or_else(|| "-".to_owned(), |time| time.to_string());
        [step.version.to_string(), step.name.to_owned(), applied]
    });
    output::table(&[">version", "name", "applied at"], rows)
}
