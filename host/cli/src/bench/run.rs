//! Which stages a run has, and in which order.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use outbox::TransactionalStore;
use outbox::sink::Sink;

use super::counters::{Cost, Counters, costed};
use super::report::{Backlog, Costs, EmptyTable, Hosts, Hot, Plugin, Rates, Report, Setup};
use super::snapshot::Snapshot;
use super::stage::{Bench, Error, Isolation};
use super::{BenchCommand, backlog, hosts, hot, report};
use crate::config::Kind;

/// What a run needs besides its table, if the options ask for it.
pub(super) struct Extras {
    counters: Option<Counters>,
    snapshot: Option<Snapshot>,
    sink: Option<Arc<dyn Sink>>,
}

impl Extras {
    /// Connects to the database of this URL as often as the options ask for.
    pub(super) async fn open(
        command: &BenchCommand,
        kind: Kind,
        url: &str,
        sink: Option<Arc<dyn Sink>>,
    ) -> Result<Self, Error> {
        let counters = if command.costs { Counters::connect(kind, url).await? } else { None };
        let snapshot = if command.snapshot { Some(Snapshot::connect(kind, url).await?) } else { None };
        Ok(Self { counters, snapshot, sink })
    }
}

/// Runs all stages that the options ask for, then drops the table.
pub(super) async fn measure<S: TransactionalStore + Clone>(
    command: &BenchCommand,
    store: S,
    Extras { mut counters, mut snapshot, sink }: Extras,
) -> Result<Report, Error> {
    let setup = Setup::of(command, store.kind());
    let workers = usize::from(command.workers);
    let mut bench = Bench::open(store, command.events, command.payload_bytes, workers, command.telemetry.clone()).await?;
    let hosts = measure_hosts(command, &bench).await?;
    let backlog = measure_backlog(command, &bench).await?;
    let empty_table = measure_empty_table(command, &bench).await?;
    prefill(command, &mut bench).await?;
    if let Some(snapshot) = &mut snapshot {
        snapshot.take().await?;
    }
    let (rates, costs) = measure_rates(&bench, &mut counters).await?;
    let relay_per_s = measure_relay(&bench, sink).await?;
    let plugin = measure_plugin(command, &bench).await?;
    let hot = stage("commit → listener", Box::pin(hot::latency(&bench))).await?;
    // Last: a host that keeps no order would deliver the blocked events.
    let ordered_blocked_per_s = measure_blocked(command, &mut bench).await?;
    drop(snapshot);
    bench.close().await?;
    Ok(Report {
        setup,
        empty_table,
        rates,
        relay_per_s,
        plugin,
        costs,
        hot: Hot { hot_p50_us: hot.percentile(50), hot_p99_us: hot.percentile(99) },
        ordered_blocked_per_s,
        hosts,
        backlog,
        rss_peak_bytes: report::rss_peak_bytes(),
    })
}

/// What a stage does. Boxed: a debug build copies a future to the stack each time it is passed on, and these are large.
type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Prints which stage begins, and names the stage in its error.
async fn stage<T>(name: &str, work: Work<'_, T>) -> Result<T, Error> {
    eprintln!("measuring: {name}");
    work.await.map_err(|error| format!("stage `{name}`: {error}").into())
}

/// As [`stage`], and returns what each event has cost if there are counters.
async fn costed_stage<T: Send>(
    name: &str,
    counters: &mut Option<Counters>,
    events: u32,
    work: Work<'_, T>,
) -> Result<(T, Option<Cost>), Error> {
    stage(name, Box::pin(costed(counters, events, work))).await
}

async fn measure_hosts<S: TransactionalStore + Clone>(command: &BenchCommand, bench: &Bench<S>) -> Result<Hosts, Error> {
    if command.hosts <= 1 {
        return Ok(Hosts::default());
    }
    let one_host = stage("one host", Box::pin(hosts::drain_together(bench, 1))).await?;
    let hosts = stage("several hosts", Box::pin(hosts::drain_together(bench, command.hosts))).await?;
    Ok(Hosts { one_host_per_s: Some(one_host), hosts_per_s: Some(hosts) })
}

async fn measure_backlog<S: TransactionalStore + Clone>(command: &BenchCommand, bench: &Bench<S>) -> Result<Backlog, Error> {
    if command.backlog == 0 {
        return Ok(Backlog::default());
    }
    let alone = stage("commit by another process → listener, alone", Box::pin(backlog::alone(bench))).await?;
    let work = Box::pin(backlog::beside_slow_route(bench, command.backlog));
    let beside_slow = stage("commit by another process → listener, beside a slow route", work).await?;
    let during_drain = stage("commit → listener, during a drain", Box::pin(backlog::during_drain(bench))).await?;
    Ok(Backlog {
        cold_p99_us: Some(alone.others.percentile(99)),
        cold_beside_slow_first_us: Some(beside_slow.first.as_secs_f64() * 1e6),
        cold_beside_slow_p99_us: Some(beside_slow.others.percentile(99)),
        hot_beside_drain_p99_us: during_drain.map(|latency| latency.percentile(99)),
    })
}

/// What the filled table is compared with, if the options fill it.
async fn measure_empty_table<S: TransactionalStore + Clone>(
    command: &BenchCommand,
    bench: &Bench<S>,
) -> Result<EmptyTable, Error> {
    if command.finished == 0 && command.parked == 0 && command.blocked == 0 && !command.snapshot {
        return Ok(EmptyTable::default());
    }
    let native = stage("native listener, empty table", Box::pin(bench.native())).await?;
    let ordered = stage("native listener, ordered by aggregate, empty table", Box::pin(bench.native_in_order())).await?;
    Ok(EmptyTable { native_empty_per_s: Some(native), ordered_empty_per_s: Some(ordered) })
}

async fn prefill<S: TransactionalStore + Clone>(command: &BenchCommand, bench: &mut Bench<S>) -> Result<(), Error> {
    if command.finished == 0 && command.parked == 0 {
        return Ok(());
    }
    stage("(filling the table first)", Box::pin(bench.prefill(command.finished, command.parked))).await
}

/// The stages of every run, each with its costs if there are counters.
async fn measure_rates<S: TransactionalStore + Clone>(
    bench: &Bench<S>,
    counters: &mut Option<Counters>,
) -> Result<(Rates, Costs), Error> {
    let events = bench.events;
    let (claims, claims_cost) =
        costed_stage("claim and settle alone", counters, events, Box::pin(bench.write_and_claim())).await?;
    let (reads_per_s, reads_cost) = costed_stage("read and settle alone", counters, events, Box::pin(bench.read())).await?;
    let (native_per_s, native_cost) = costed_stage("native listener", counters, events, Box::pin(bench.native())).await?;
    let (ordered_per_s, ordered_cost) =
        costed_stage("native listener, ordered by aggregate", counters, events, Box::pin(bench.native_in_order())).await?;
    let rates =
        Rates { write_per_s: claims.write_per_s, claims_per_s: claims.claims_per_s, reads_per_s, native_per_s, ordered_per_s };
    Ok((rates, Costs { claims_cost, reads_cost, native_cost, ordered_cost }))
}

async fn measure_relay<S: TransactionalStore + Clone>(
    bench: &Bench<S>,
    sink: Option<Arc<dyn Sink>>,
) -> Result<Option<f64>, Error> {
    let Some(sink) = sink else { return Ok(None) };
    stage("relay to the sink", Box::pin(bench.relay(sink))).await.map(Some)
}

async fn measure_plugin<S: TransactionalStore + Clone>(command: &BenchCommand, bench: &Bench<S>) -> Result<Plugin, Error> {
    let Some(file) = &command.plugin else { return Ok(Plugin::default()) };
    Ok(Plugin {
        plugin_event_per_s: Some(plugin_stage(bench, file, Isolation::Event).await?),
        plugin_batch_per_s: Some(plugin_stage(bench, file, Isolation::Batch).await?),
        plugin_worker_per_s: Some(plugin_stage(bench, file, Isolation::Worker).await?),
    })
}

async fn plugin_stage<S: TransactionalStore + Clone>(
    bench: &Bench<S>,
    file: &Path,
    isolation: Isolation,
) -> Result<f64, Error> {
    stage(isolation.label(), Box::pin(bench.plugin(file, isolation))).await
}

async fn measure_blocked<S: TransactionalStore + Clone>(
    command: &BenchCommand,
    bench: &mut Bench<S>,
) -> Result<Option<f64>, Error> {
    if command.blocked == 0 {
        return Ok(None);
    }
    let work = Box::pin(async {
        bench.block(command.blocked).await?;
        bench.native_in_order().await
    });
    stage("native listener, ordered by aggregate, beside blocked events", work).await.map(Some)
}
