//! `outbox bench`: how fast this machine and this database are, from one run, so that the figures can be compared.

mod beside;
mod counters;
mod hosts;
mod hot;
mod snapshot;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use outbox::sink::Sink;
use outbox::store::TableName;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::sqlite::SqliteOptions;
use outbox::telemetry::Telemetry;
use outbox::{MySqlStore, PostgresStore, SqliteStore, TransactionalStore};

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::host;
use crate::output::{self, Output};
use counters::{Cost, Counters};
use hot::Latency;
use snapshot::Snapshot;

/// Measure the throughput and latency of this machine and database
///
/// Measures claiming and settling alone, then with native listeners and plugins, then the time from a commit to its listener. Uses its own
/// table, `outbox_bench`, and drops it afterwards; if the configured SQLite file does not exist, uses a temporary one. Compare figures within
/// one run: they vary between runs. Where the table is filled first, native listeners are measured on an empty one, too. With the variables of OpenTelemetry it exports as a host does, so that its cost is measured too.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  outbox bench --events 100000 --plugin target/plugins/noop.wasm")]
pub(crate) struct BenchCommand {
    /// How many events each stage delivers
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    events: u32,
    /// How many workers deliver events
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// The size of each payload in bytes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(2..1_048_576))]
    payload_bytes: u32,
    /// How many delivered events to put into the table first
    #[arg(long, default_value_t = 0)]
    finished: u32,
    /// How many parked events to put into the table first
    #[arg(long, default_value_t = 0)]
    parked: u32,
    /// Also measure ordering with so many events of one aggregate in the table that wait behind a dead one
    #[arg(long, default_value_t = 0)]
    blocked: u32,
    /// Hold a transaction open that has read, from the time when the table is filled
    #[arg(long)]
    snapshot: bool,
    /// Also measure the time from a commit to its listener beside so many waiting events: of a slow route, and of a drain
    #[arg(long, default_value_t = 0)]
    backlog: u32,
    /// Also measure so many hosts together, beside one alone, in the mode `multi_node`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    hosts: u16,
    /// Also measure this plugin, which must answer Bench/Noop: with a fresh instance for each event, for each batch, and for each worker
    #[arg(long, conflicts_with = "native")]
    plugin: Option<PathBuf>,
    /// Measure native listeners only
    #[arg(long)]
    native: bool,
    /// Also measure a relay to this configured sink; every event is sent there as a message of the route Bench/Noop
    #[arg(long, value_name = "SINK")]
    relay: Option<String>,
    /// Also print what each event costs the database: the rows and the bytes of the log that its server has written, counted for the
    /// whole server (PostgreSQL: takes half a minute longer for each stage)
    #[arg(long)]
    costs: bool,
    #[command(flatten)]
    output: Output,
    /// Exports what is measured, where the environment asks for it.
    #[arg(skip)]
    telemetry: Option<Telemetry>,
}

impl BenchCommand {
    pub(crate) async fn run(mut self, config: &Config) -> Result<(), Failure> {
        let format = self.output.output;
        self.telemetry = host::telemetry()?;
        let telemetry = self.telemetry.clone();
        if let Some(file) = &self.plugin {
            // Found out now, not after minutes of measuring.
            std::fs::metadata(file).map_err(|error| {
                let what = format!("the plugin {} cannot be read", file.display());
                Failure::unreadable(what, error, Exit::Failed)
            })?;
        }
        let sink = match &self.relay {
            Some(name) => {
                let unknown = || {
                    Failure::new(
                        Exit::NotFound,
                        format!("there is no sink `{name}`; add a section [sinks.{name}] to the configuration"),
                    )
                };
                Some(crate::sinks::connect(config).get(name).ok_or_else(unknown)?)
            }
            None => None,
        };
        let url = config.database.url.clone();
        // On a worker's thread, like the host itself: the thread of `main` would be woken for every row.
        let measured = tokio::spawn(async move { self.of(&url, sink).await }).await;
        if let Some(telemetry) = telemetry {
            telemetry.shutdown().await;
        }
        let report = match measured {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => return Err(Failure::new(Exit::Failed, format!("the benchmark stopped: {error}"))),
            Err(error) => return Err(Failure::new(Exit::Failed, "the benchmark broke").because(error)),
        };
        let header: &[&str] = match report.claims_cost {
            Some(_) => &["what", ">rate", ">× claim and settle", ">row writes", ">log bytes"],
            None => &["what", ">rate", ">× claim and settle"],
        };
        output::one(&report, format, |report| output::table(header, report.rows()))
    }
}

type Error = stage::Error;

impl BenchCommand {
    /// Measures the database of this URL, in a table of its own.
    async fn of(&self, url: &str, sink: Option<Arc<dyn Sink>>) -> Result<Report, Error> {
        let table = TableName::new("outbox_bench")?;
        match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "postgres" | "postgresql" => {
                let options = PostgresOptions::from_url(url)?.table(table);
                let beside = (self.counters(url).await?, self.held_open(url).await?);
                measure(self, PostgresStore::connect_with(options).await?, beside, sink).await
            }
            "mysql" | "mariadb" => {
                let options = MySqlOptions::from_url(url)?.table(table);
                let beside = (self.counters(url).await?, self.held_open(url).await?);
                measure(self, MySqlStore::connect_with(options).await?, beside, sink).await
            }
            _ => self.of_file(SqliteOptions::from_url(url)?.create(true).table(table), sink).await,
        }
    }

    /// The server's counters, where somebody wants to know them.
    async fn counters(&self, url: &str) -> Result<Option<Counters>, Error> {
        if self.costs { Counters::of(url).await } else { Ok(None) }
    }

    /// What holds a transaction open, where that is asked for.
    async fn held_open(&self, url: &str) -> Result<Option<Snapshot>, Error> {
        Ok(if self.snapshot { Some(Snapshot::of(url).await?) } else { None })
    }

    /// Whether the table is filled first.
    fn is_crowded(&self) -> bool {
        self.finished > 0 || self.parked > 0 || self.blocked > 0 || self.snapshot
    }

    /// Measures a SQLite file: that of the configuration when it is there, else one of its own, deleted afterwards.
    async fn of_file(&self, mut options: SqliteOptions, sink: Option<Arc<dyn Sink>>) -> Result<Report, Error> {
        let own_file = !options.file.exists();
        if own_file {
            options.file.set_file_name(format!("outbox-bench-{}.db", std::process::id()));
        }
        let file = options.file.clone();
        let store = SqliteStore::open_with(options).await?;
        let report = match self.held_open(&format!("sqlite:{}", file.display())).await {
            Ok(snapshot) => measure(self, store, (None, snapshot), sink).await,
            Err(error) => Err(error),
        };
        if own_file {
            for suffix in ["", "-wal", "-shm"] {
                let mut name = file.clone().into_os_string();
                name.push(suffix);
                let _ = std::fs::remove_file(name);
            }
        }
        report
    }
}

/// What was measured. Rates are events per second; `None` where nothing was measured.
#[derive(Debug, Serialize)]
struct Report {
    database: &'static str,
    events: u32,
    workers: u16,
    payload_bytes: u32,
    /// Finished events that were in the table before.
    finished: u32,
    /// Parked ones.
    parked: u32,
    /// Events that wait behind a dead one, for `ordered_blocked_per_s`.
    blocked: u32,
    /// Whether a transaction was held open.
    snapshot: bool,
    /// On an empty table, where the others were measured on a filled one: with a native listener, and in order by aggregate.
    native_empty_per_s: Option<f64>,
    ordered_empty_per_s: Option<f64>,
    /// `write_all` of 1,000 events at a time.
    write_per_s: f64,
    /// Claim each row and settle it, alone.
    claims_per_s: f64,
    /// Read without a claim and settle, alone.
    reads_per_s: f64,
    /// With a native listener that does nothing.
    native_per_s: f64,
    /// The same, with the events of 1,000 aggregates each one after the other.
    ordered_per_s: f64,
    /// With a relay to a sink, until the last message is confirmed and its outcome stored.
    relay_per_s: Option<f64>,
    /// With the plugin, a fresh instance for each event.
    plugin_event_per_s: Option<f64>,
    /// With the plugin, a fresh instance for each claimed batch.
    plugin_batch_per_s: Option<f64>,
    /// With the plugin, an instance kept by each worker.
    plugin_worker_per_s: Option<f64>,
    /// What each event costs the database where its row is claimed; this and those below where that was asked for.
    claims_cost: Option<Cost>,
    /// The same where it is read.
    reads_cost: Option<Cost>,
    /// The same by a host with a native listener.
    native_cost: Option<Cost>,
    /// The same in order by aggregate.
    ordered_cost: Option<Cost>,
    /// From the confirmed commit to the listener's first instruction, median, microseconds.
    hot_p50_us: f64,
    /// The same, 99th percentile.
    hot_p99_us: f64,
    /// In order by aggregate, beside events of another aggregate that wait behind a dead one.
    ordered_blocked_per_s: Option<f64>,
    /// One host in the mode `multi_node`, and several of them together.
    one_host_per_s: Option<f64>,
    hosts_per_s: Option<f64>,
    /// From another process's commit to the listener of a fast route, 99th percentile, microseconds: alone, and beside a backlog of a slow
    /// route, of which the first event waits longer.
    cold_p99_us: Option<f64>,
    cold_beside_slow_first_us: Option<f64>,
    cold_beside_slow_p99_us: Option<f64>,
    /// From the commit of a hot event to its listener while the host drains the table, 99th percentile, microseconds.
    hot_beside_drain_p99_us: Option<f64>,
    /// The most memory that the process had resident so far; `None` where the system does not tell.
    rss_peak_bytes: Option<u64>,
}

/// Measures everything.
async fn measure<S: TransactionalStore + Clone>(
    args: &BenchCommand,
    store: S,
    (mut counters, mut snapshot): (Option<Counters>, Option<Snapshot>),
    sink: Option<Arc<dyn Sink>>,
) -> Result<Report, Error> {
    let progress = |what: &str| eprintln!("measuring: {what}");
    let database = store.kind();
    let workers = usize::from(args.workers);
    let mut bench = stage::Bench::open(store, args.events, args.payload_bytes, workers, args.telemetry.clone()).await?;
    let p99 = |latency: Latency| latency.percentile(99);
    let (mut one_host_per_s, mut hosts_per_s) = (None, None);
    if args.hosts > 1 {
        progress("one host");
        one_host_per_s = Some(hosts::drain_together(&bench, 1).await?);
        progress("several hosts");
        hosts_per_s = Some(hosts::drain_together(&bench, usize::from(args.hosts)).await?);
    }
    let (mut cold_p99_us, mut cold_beside_slow_first_us, mut cold_beside_slow_p99_us) = (None, None, None);
    let mut hot_beside_drain_p99_us = None;
    if args.backlog > 0 {
        progress("from another's commit to the listener, alone");
        bench.clear().await?;
        cold_p99_us = Some(p99(beside::cold(&bench).await?.1));
        progress("from another's commit to the listener, beside a slow route");
        bench.fill_slow(args.backlog).await?;
        let (first, others) = beside::cold(&bench).await?;
        cold_beside_slow_first_us = Some(first.as_secs_f64() * 1e6);
        cold_beside_slow_p99_us = Some(p99(others));
        progress("from the commit to the listener, beside a drain");
        bench.fill().await?;
        hot_beside_drain_p99_us = beside::drain(&bench).await?.map(p99);
    }
    let (mut native_empty_per_s, mut ordered_empty_per_s) = (None, None);
    if args.is_crowded() {
        progress("native listener, empty table");
        bench.fill().await?;
        native_empty_per_s = Some(bench.drain(stage::native()?).await?);
        progress("native listener, ordered by aggregate, empty table");
        bench.fill_aggregates().await?;
        ordered_empty_per_s = Some(bench.drain_in_order(stage::native()?).await?);
    }
    if args.finished + args.parked > 0 {
        progress("(filling the table first)");
        bench.clear().await?;
        bench.crowd(args.finished, args.parked).await?;
    }
    if let Some(snapshot) = &mut snapshot {
        snapshot.take().await?;
    }
    let events = args.events;
    progress("claim and settle alone");
    let begun = counters::begin(&mut counters).await?;
    let write_per_s = bench.fill().await?;
    let claims_per_s = bench.by_claims().await?;
    let claims_cost = counters::end(&mut counters, begun, events).await?;
    progress("read and settle alone");
    let begun = counters::begin(&mut counters).await?;
    bench.fill().await?;
    let reads_per_s = bench.by_reads().await?;
    let reads_cost = counters::end(&mut counters, begun, events).await?;
    progress("native listener");
    let begun = counters::begin(&mut counters).await?;
    bench.fill().await?;
    let native_per_s = bench.drain(stage::native()?).await?;
    let native_cost = counters::end(&mut counters, begun, events).await?;
    progress("native listener, ordered by aggregate");
    let begun = counters::begin(&mut counters).await?;
    bench.fill_aggregates().await?;
    let ordered_per_s = bench.drain_in_order(stage::native()?).await?;
    let ordered_cost = counters::end(&mut counters, begun, events).await?;
    let mut relay_per_s = None;
    if let Some(sink) = sink {
        progress("relay to the sink");
        bench.fill().await?;
        relay_per_s = Some(bench.relay(sink).await?);
    }
    let mut plugin = [None; 3];
    if let Some(file) = &args.plugin {
        for (rate, isolation) in plugin.iter_mut().zip(stage::Isolation::ALL) {
            progress(isolation.label());
            bench.fill().await?;
            *rate = Some(bench.drain(stage::plugin(file, isolation, usize::from(args.workers)).await?).await?);
        }
    }
    progress("from the commit to the listener");
    let hot = hot::latency(&bench).await?;
    let mut ordered_blocked_per_s = None;
    if args.blocked > 0 {
        // The last one: a host that keeps no order would let them go.
        progress("native listener, ordered by aggregate, beside blocked events");
        bench.clear().await?;
        bench.block(args.blocked).await?;
        bench.fill_aggregates().await?;
        ordered_blocked_per_s = Some(bench.drain_in_order(stage::native()?).await?);
    }
    drop(snapshot);
    bench.close().await?;
    Ok(Report {
        database,
        events: args.events,
        workers: args.workers,
        payload_bytes: args.payload_bytes,
        finished: args.finished,
        parked: args.parked,
        blocked: args.blocked,
        snapshot: args.snapshot,
        native_empty_per_s,
        ordered_empty_per_s,
        write_per_s,
        claims_per_s,
        reads_per_s,
        native_per_s,
        ordered_per_s,
        relay_per_s,
        plugin_event_per_s: plugin[0],
        plugin_batch_per_s: plugin[1],
        plugin_worker_per_s: plugin[2],
        claims_cost,
        reads_cost,
        native_cost,
        ordered_cost,
        hot_p50_us: hot.percentile(50),
        hot_p99_us: hot.percentile(99),
        ordered_blocked_per_s,
        one_host_per_s,
        hosts_per_s,
        cold_p99_us,
        cold_beside_slow_first_us,
        cold_beside_slow_p99_us,
        hot_beside_drain_p99_us,
        rss_peak_bytes: rss_peak_bytes(),
    })
}

impl Report {
    /// For people: each rate beside its share of claiming and settling alone, and what each event costs.
    fn rows(&self) -> Vec<Vec<String>> {
        let costly = |name: &str, rate: Option<f64>, cost: Option<Cost>| {
            let share = rate.map_or_else(String::new, |rate| format!("{:.2}", rate / self.claims_per_s));
            let rate = rate.map_or_else(|| "not measured".to_owned(), |rate| format!("{rate:.0}/s"));
            let cost = cost.map(|cost| [format!("{:.2}", cost.row_writes), format!("{:.0}", cost.log_bytes)]);
            [name.to_owned(), rate, share].into_iter().chain(cost.into_iter().flatten()).collect()
        };
        let rate = |name: &str, rate: Option<f64>| costly(name, rate, None);
        let plain = |name: &str, value: String| vec![name.to_owned(), value];
        let time = |name: &str, micros: Option<f64>| micros.map(|micros| plain(name, format!("{micros:.0} µs")));
        let asked_for = |name: &str, per_s: Option<f64>| per_s.map(|per_s| rate(name, Some(per_s)));
        let mut rows = vec![
            plain("write_all, 1,000 at a time", format!("{:.0}/s", self.write_per_s)),
            costly("claim and settle alone", Some(self.claims_per_s), self.claims_cost),
            costly("read and settle alone", Some(self.reads_per_s), self.reads_cost),
            costly("native listener", Some(self.native_per_s), self.native_cost),
            costly("native listener, ordered by aggregate", Some(self.ordered_per_s), self.ordered_cost),
            rate("relay to a sink", self.relay_per_s),
            rate("plugin, fresh for each event", self.plugin_event_per_s),
            rate("plugin, fresh for each batch", self.plugin_batch_per_s),
            rate("plugin, kept by each worker", self.plugin_worker_per_s),
            plain("commit → listener, p50", format!("{:.0} µs", self.hot_p50_us)),
            plain("commit → listener, p99", format!("{:.0} µs", self.hot_p99_us)),
        ];
        let more = [
            asked_for("native listener, empty table", self.native_empty_per_s),
            asked_for("native listener, ordered, empty table", self.ordered_empty_per_s),
            asked_for("native listener, ordered, beside blocked events", self.ordered_blocked_per_s),
            asked_for("one host, multi_node", self.one_host_per_s),
            asked_for("several hosts together", self.hosts_per_s),
            time("commit of another → listener, p99", self.cold_p99_us),
            time("the same beside a slow route, the first", self.cold_beside_slow_first_us),
            time("the same beside a slow route, p99", self.cold_beside_slow_p99_us),
            time("commit → listener beside a drain, p99", self.hot_beside_drain_p99_us),
        ];
        rows.extend(more.into_iter().flatten());
        let memory = self.rss_peak_bytes.map(|bytes| format!("{:.1} MiB", bytes as f64 / 1_048_576.0));
        rows.push(plain("most memory resident", memory.unwrap_or_else(|| "unknown".to_owned())));
        rows
    }
}

/// The high-water mark of the resident memory, where the system has `/proc`.
fn rss_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}
