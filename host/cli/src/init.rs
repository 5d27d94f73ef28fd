//! `outbox init`: a commented configuration to begin with.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::config::{FILE, Kind};
use crate::failure::{Exit, Failure};
use crate::flags::Global;
use crate::output::{self, argument};
use crate::rights;

/// Every setting with its default, commented out. A test holds it against the defaults.
const TEMPLATE: &str = include_str!("init.toml");

/// What is different for each database stands here in the template.
const DATABASE: &str = "{database}\n";

/// Write a commented outbox.toml
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox init && outbox migrate up\n  outbox init --db postgres /etc/outbox.toml\n  \
                            outbox init --db mysql - | less")]
pub(crate) struct InitCommand {
    /// The kind of database
    #[arg(long, value_enum, default_value_t)]
    db: Kind,
    /// The file to write, or `-` for standard output
    #[arg(default_value = "outbox.toml", value_name = "FILE")]
    file: PathBuf,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
}

/// The file for a kind of database.
pub(crate) fn template(kind: Kind) -> String {
    TEMPLATE.replace(
        DATABASE,
        match kind {
            Kind::Sqlite => include_str!("init/sqlite.toml"),
            Kind::Postgres => include_str!("init/postgres.toml"),
            Kind::Mysql => include_str!("init/mysql.toml"),
        },
    )
}

impl InitCommand {
    pub(crate) fn run(self, global: &Global) -> Result<(), Failure> {
        self.refuse(global)?;
        let Self { db, file, force } = self;
        if file == Path::new("-") {
            return output::print(&template(db));
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).truncate(true);
        // Looking first and writing then could meet a file that came between.
        if force {
            options.create(true)
        } else {
            options.create_new(true)
        };
        let name = file.display();
        let written = options.open(&file).and_then(|mut file| file.write_all(template(db).as_bytes()));
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::new(Exit::Conflict, format!("{name} exists already; edit it, or overwrite it with --force"))
            }
            _ => {
                Failure::new(Exit::Failed, format!("{name} cannot be written")).because(error).details(rights::to_create(&file))
            }
        })?;
        // As they are printed, these commands work: a file of another name has to be named.
        let config =
            if file == Path::new(FILE) { String::new() } else { format!(" --config {}", argument(&file.to_string_lossy())) };
        let next = format!("mkdir -p plugins && outbox migrate up{config} && outbox run{config}");
        match db {
            Kind::Sqlite => {
                eprintln!("wrote {name}; every setting has its default value, so change only what you need");
                eprintln!("next: {next}");
            }
            Kind::Postgres | Kind::Mysql => {
                eprintln!("wrote {name}; set database.url and database.password in it, everything else is a default");
                eprintln!("then check the server: outbox doctor{config}");
                eprintln!("next: {next}");
            }
        }
        Ok(())
    }

    /// Refuses the flags that other commands read: whoever gives them expects them in the file.
    fn refuse(&self, global: &Global) -> Result<(), Failure> {
        let kind = global.database_url.as_deref().and_then(Kind::of).unwrap_or(self.db).to_possible_value();
        let kind = kind.as_ref().map_or("KIND", |kind| kind.get_name());
        let db = format!("use --db {kind}, and set database.url in the file");
        let config = global.config.as_deref().unwrap_or(&self.file).to_string_lossy();
        let name = format!("give only the name of the file: outbox init {}", argument(&config));
        let faults: Vec<String> = [
            ("--config", global.config.is_some(), name.as_str()),
            ("--database-url", global.database_url.is_some(), &db),
            ("--plugins", global.plugins.is_some(), "set plugins.dir in the file"),
            ("--set", !global.set.is_empty(), "change the settings in the file"),
            ("--url", global.url.is_some(), "leave it out"),
            ("--token", global.token.is_some(), "leave it out"),
        ]
        .into_iter()
        .filter(|(_, is_given, _)| *is_given)
        .map(|(flag, _, instead)| format!("`outbox init` does not use {flag}; {instead}"))
        .collect();
        let mut faults = faults.into_iter();
        let Some(first) = faults.next() else { return Ok(()) };
        Err(Failure::new(Exit::Usage, first).details(faults.collect()))
    }
}
