//! `outbox bench`: measures how fast this machine and this database are. All figures are of one run, so that they can be compared.

mod alone;
mod backlog;
mod counters;
mod fill;
mod hosts;
mod hot;
mod latency;
mod report;
mod run;
mod snapshot;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use outbox::sink::Sink;
use outbox::store::TableName;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::sqlite::SqliteOptions;
use outbox::{MySqlStore, PostgresStore, SqliteStore};

use crate::config::{Config, Kind};
use crate::database;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::telemetry::{self, Telemetry};
use report::Report;
use run::Extras;
use stage::Error;

/// Measure the throughput and latency of this machine and database
///
/// Measures claiming and settling alone, then delivery to native listeners and plugins, then the time from a commit to its
/// listener. Uses a table of its own, `outbox_bench`, and drops it at the end; after a failure, the next run drops it. If the
/// configured SQLite file does not exist, a temporary file is used. Compare only figures of the same run, since they vary
/// between runs. If the options fill the table first, native listeners are also measured on an empty table. If the
/// OpenTelemetry variables are set, the hosts export telemetry, so the figures include its cost.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  outbox bench --events 100000 --plugin target/plugins/noop.wasm")]
pub(crate) struct BenchCommand {
    /// How many events each throughput stage writes and delivers; latency stages use a fixed number
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    events: u32,
    /// How many workers each host has; the relay stage uses at least 256
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// The size of each payload in bytes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(2..1_048_576))]
    payload_bytes: u32,
    /// Fill the table with this many delivered events first
    #[arg(long, default_value_t = 0)]
    finished: u32,
    /// Fill the table with this many parked events first
    #[arg(long, default_value_t = 0)]
    parked: u32,
    /// Also measure delivery in order while this many events of one aggregate wait behind a dead event; 0 skips this
    #[arg(long, default_value_t = 0)]
    blocked: u32,
    /// Keep a read transaction open after the table is filled, so that the database must keep old versions of rows
    #[arg(long)]
    snapshot: bool,
    /// Also measure the time from a commit to its listener while this many events of a slow route wait, and while a host
    /// delivers as many events as --events says; 0 skips this
    #[arg(long, default_value_t = 0)]
    backlog: u32,
    /// Also measure the throughput of this many hosts together and of one host alone, in the mode multi_node; 1 skips this
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    hosts: u16,
    /// Also measure this plugin, which must answer Bench/Noop with done: with a fresh instance for each event, with one for
    /// each batch, and with one that each worker keeps
    #[arg(long, value_name = "FILE", conflicts_with = "native")]
    plugin: Option<PathBuf>,
    /// Measure no plugin, which is the default
    #[arg(long)]
    native: bool,
    /// Also measure a relay to this configured sink, which gets every event as a message of the route Bench/Noop
    #[arg(long, value_name = "SINK")]
    relay: Option<String>,
    /// Also print how many rows and bytes of log the database server writes for each event, including what other clients write
    /// meanwhile. Not for SQLite; on PostgreSQL each of the four stages that are counted takes 22 s longer
    #[arg(long)]
    costs: bool,
    #[command(flatten)]
    output: Output,
    /// Exports what the hosts do, if the environment asks for it.
    #[arg(skip)]
    telemetry: Option<Telemetry>,
}

impl BenchCommand {
    pub(crate) async fn run(mut self, config: &Config) -> Result<(), Failure> {
        let format = self.output.output;
        let kind = config.database.kind()?;
        self.telemetry = telemetry::start()?;
        let telemetry = self.telemetry.clone();
        self.check(kind)?;
        let sink = self.sink(config)?;
        let url = database::address(&config.database).await?;
        let table = TableName::new("outbox_bench").expect("a good name");
        let table = config.database.in_schema(table);
        // On a worker's thread, like the host itself: the thread of `main` would be woken for every row.
        let measured = tokio::spawn(async move { self.measure(kind, &url, table, sink).await }).await;
        if let Some(telemetry) = telemetry {
            telemetry.shutdown().await;
        }
        match measured {
            Ok(Ok(report)) => report.print(format),
            Ok(Err(error)) => Err(Failure::new(Exit::Failed, format!("the benchmark stopped: {error}"))),
            Err(error) => Err(Failure::new(Exit::Failed, "the benchmark broke").because(error)),
        }
    }

    /// Refuses what cannot be measured now, not after minutes of measuring.
    fn check(&self, kind: Kind) -> Result<(), Failure> {
        if self.costs && kind == Kind::Sqlite {
            let why = "--costs reads the counters of a database server, which SQLite does not have; \
                       leave it out, or name a PostgreSQL or MySQL server with --database-url";
            return Err(Failure::new(Exit::Usage, why));
        }
        if let Some(file) = &self.plugin {
            std::fs::metadata(file).map_err(|error| {
                let what = format!("the plugin {} cannot be read", file.display());
                Failure::unreadable(what, error, Exit::Failed)
            })?;
        }
        Ok(())
    }

    /// The sink of `--relay`.
    fn sink(&self, config: &Config) -> Result<Option<Arc<dyn Sink>>, Failure> {
        let Some(name) = &self.relay else { return Ok(None) };
        let unknown = || crate::sinks::unknown(name, config.sinks().keys(), None);
        Ok(Some(crate::sinks::connect(config)?.get(name).ok_or_else(unknown)?))
    }

    /// Measures the database of this URL, in a table of its own.
    async fn measure(&self, kind: Kind, url: &str, table: TableName, sink: Option<Arc<dyn Sink>>) -> Result<Report, Error> {
        match kind {
            Kind::Postgres => {
                let options = PostgresOptions::from_url(url)?.table(table);
                let extras = Extras::open(self, kind, url, sink).await?;
                run::measure(self, PostgresStore::connect_with(options).await?, extras).await
            }
            Kind::Mysql => {
                let options = MySqlOptions::from_url(url)?.table(table);
                let extras = Extras::open(self, kind, url, sink).await?;
                run::measure(self, MySqlStore::connect_with(options).await?, extras).await
            }
            Kind::Sqlite => self.measure_file(SqliteOptions::from_url(url)?.create(true).table(table), sink).await,
        }
    }

    /// Measures the configured SQLite file if it exists, else a file beside it, which is deleted afterwards.
    async fn measure_file(&self, mut options: SqliteOptions, sink: Option<Arc<dyn Sink>>) -> Result<Report, Error> {
        let is_temporary = !options.file.exists();
        if is_temporary {
            options.file.set_file_name(format!("outbox-bench-{}.db", std::process::id()));
        }
        let file = options.file.clone();
        let store = SqliteStore::open_with(options).await?;
        let report = match Extras::open(self, Kind::Sqlite, &format!("sqlite:{}", file.display()), sink).await {
            Ok(extras) => run::measure(self, store, extras).await,
            Err(error) => Err(error),
        };
        if is_temporary {
            for suffix in ["", "-wal", "-shm"] {
                let mut name = file.clone().into_os_string();
                name.push(suffix);
                let _ = std::fs::remove_file(name);
            }
        }
        report
    }
}
