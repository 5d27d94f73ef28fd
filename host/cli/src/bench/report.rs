//! What a run has measured, and how it is printed.

use serde::Serialize;

use super::BenchCommand;
use super::counters::Cost;
use super::stage::Isolation;
use crate::failure::Failure;
use crate::output::{self, Format};

/// What was measured. Rates are events per second; `None` for what was not measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) setup: Setup,
    #[serde(flatten)]
    pub(super) empty_table: EmptyTable,
    #[serde(flatten)]
    pub(super) rates: Rates,
    /// With a relay to a sink, until the last message is confirmed and its outcome stored.
    pub(super) relay_per_s: Option<f64>,
    #[serde(flatten)]
    pub(super) plugin: Plugin,
    #[serde(flatten)]
    pub(super) costs: Costs,
    #[serde(flatten)]
    pub(super) hot: Hot,
    /// With a native listener, in order by aggregate, while events of another aggregate wait behind a dead event.
    pub(super) ordered_blocked_per_s: Option<f64>,
    #[serde(flatten)]
    pub(super) hosts: Hosts,
    #[serde(flatten)]
    pub(super) backlog: Backlog,
    /// The peak of the process's resident memory; `None` on a system that does not tell.
    pub(super) rss_peak_bytes: Option<u64>,
}

/// What the options asked for.
#[derive(Debug, Serialize)]
pub(super) struct Setup {
    database: &'static str,
    events: u32,
    workers: u16,
    payload_bytes: u32,
    /// Finished events that were put into the table first.
    finished: u32,
    /// Parked events that were put into the table first.
    parked: u32,
    /// Events that wait behind a dead event, for `ordered_blocked_per_s`.
    blocked: u32,
    /// Whether a read transaction was kept open.
    snapshot: bool,
}

/// On an empty table, when the others were measured on a filled one.
#[derive(Debug, Default, Serialize)]
pub(super) struct EmptyTable {
    /// With a native listener.
    pub(super) native_empty_per_s: Option<f64>,
    /// With a native listener, in order by aggregate.
    pub(super) ordered_empty_per_s: Option<f64>,
}

/// The rates that every run measures.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    /// `write_all` of 1,000 events at a time.
    pub(super) write_per_s: f64,
    /// Read rows, claim each and settle it, without a host.
    pub(super) claims_per_s: f64,
    /// Read rows without a claim and settle them, without a host.
    pub(super) reads_per_s: f64,
    /// With a native listener that does nothing.
    pub(super) native_per_s: f64,
    /// With the same listener, in order by aggregate, spread over 1,000 aggregates.
    pub(super) ordered_per_s: f64,
}

/// With a plugin.
#[derive(Debug, Default, Serialize)]
pub(super) struct Plugin {
    /// With a fresh instance for each event.
    pub(super) plugin_event_per_s: Option<f64>,
    /// With a fresh instance for each batch.
    pub(super) plugin_batch_per_s: Option<f64>,
    /// With an instance that each worker keeps.
    pub(super) plugin_worker_per_s: Option<f64>,
}

/// What each event costs the database in the stages of [`Rates`].
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    pub(super) claims_cost: Option<Cost>,
    pub(super) reads_cost: Option<Cost>,
    pub(super) native_cost: Option<Cost>,
    pub(super) ordered_cost: Option<Cost>,
}

/// From the confirmed commit to the first instruction of a native listener in the same process, in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Hot {
    /// The median.
    pub(super) hot_p50_us: f64,
    /// The 99th percentile.
    pub(super) hot_p99_us: f64,
}

/// Hosts in the mode `multi_node`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Hosts {
    pub(super) one_host_per_s: Option<f64>,
    /// All hosts together.
    pub(super) hosts_per_s: Option<f64>,
}

/// From a commit to the listener of a fast route, in microseconds; the 99th percentile unless said otherwise.
#[derive(Debug, Default, Serialize)]
pub(super) struct Backlog {
    /// Committed by another process; nothing else is in the table.
    pub(super) cold_p99_us: Option<f64>,
    /// The first event that another process commits beside the backlog of a slow route: the host must get past the backlog
    /// first.
    pub(super) cold_beside_slow_first_us: Option<f64>,
    /// As before, all later events.
    pub(super) cold_beside_slow_p99_us: Option<f64>,
    /// Committed in the host's own process while the host delivers other events.
    pub(super) hot_beside_drain_p99_us: Option<f64>,
}

impl Setup {
    pub(super) fn of(command: &BenchCommand, database: &'static str) -> Self {
        Self {
            database,
            events: command.events,
            workers: command.workers,
            payload_bytes: command.payload_bytes,
            finished: command.finished,
            parked: command.parked,
            blocked: command.blocked,
            snapshot: command.snapshot,
        }
    }
}

impl Report {
    /// Prints all figures.
    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        let header: &[&str] = match self.costs.claims_cost {
            Some(_) => &["what", ">rate", ">× claim and settle", ">row writes", ">log bytes"],
            None => &["what", ">rate", ">× claim and settle"],
        };
        output::one(self, format, |report| output::table(header, report.rows()))
    }

    /// For people: the rates and their costs, then the latencies, then what only some options measure.
    fn rows(&self) -> Vec<Vec<String>> {
        let Self { rates, costs, plugin, empty_table, hosts, backlog, .. } = self;
        let mut rows = vec![
            vec!["write_all, 1,000 at a time".to_owned(), format!("{:.0}/s", rates.write_per_s)],
            self.rate("claim and settle alone", Some(rates.claims_per_s), costs.claims_cost),
            self.rate("read and settle alone", Some(rates.reads_per_s), costs.reads_cost),
            self.rate("native listener", Some(rates.native_per_s), costs.native_cost),
            self.rate("native listener, ordered by aggregate", Some(rates.ordered_per_s), costs.ordered_cost),
            self.rate("relay to a sink", self.relay_per_s, None),
            self.rate(Isolation::Event.label(), plugin.plugin_event_per_s, None),
            self.rate(Isolation::Batch.label(), plugin.plugin_batch_per_s, None),
            self.rate(Isolation::Worker.label(), plugin.plugin_worker_per_s, None),
            time("commit → listener, p50", self.hot.hot_p50_us),
            time("commit → listener, p99", self.hot.hot_p99_us),
        ];
        let optional_rates = [
            ("native listener, empty table", empty_table.native_empty_per_s),
            ("native listener, ordered, empty table", empty_table.ordered_empty_per_s),
            ("native listener, ordered, beside blocked events", self.ordered_blocked_per_s),
            ("one host, multi_node", hosts.one_host_per_s),
            ("several hosts together", hosts.hosts_per_s),
        ];
        let measured = optional_rates.into_iter().filter(|(_, rate)| rate.is_some());
        rows.extend(measured.map(|(name, rate)| self.rate(name, rate, None)));
        let optional_times = [
            ("commit by another process → listener, p99", backlog.cold_p99_us),
            ("the same beside a slow route, first event", backlog.cold_beside_slow_first_us),
            ("the same beside a slow route, p99", backlog.cold_beside_slow_p99_us),
            ("commit → listener during a drain, p99", backlog.hot_beside_drain_p99_us),
        ];
        rows.extend(optional_times.into_iter().filter_map(|(name, micros)| Some(time(name, micros?))));
        let memory = self.rss_peak_bytes.map(|bytes| format!("{:.1} MiB", bytes as f64 / 1_048_576.0));
        rows.push(vec!["peak resident memory".to_owned(), memory.unwrap_or_else(|| "unknown".to_owned())]);
        rows
    }

    /// A rate, how it compares with claiming and settling alone, and what each event costs the database.
    fn rate(&self, name: &str, rate: Option<f64>, cost: Option<Cost>) -> Vec<String> {
        let compared = rate.map_or_else(String::new, |rate| format!("{:.2}", rate / self.rates.claims_per_s));
        let rate = rate.map_or_else(|| "not measured".to_owned(), |rate| format!("{rate:.0}/s"));
        let cost = cost.map(|cost| [format!("{:.2}", cost.row_writes), format!("{:.0}", cost.log_bytes)]);
        [name.to_owned(), rate, compared].into_iter().chain(cost.into_iter().flatten()).collect()
    }
}

fn time(name: &str, micros: f64) -> Vec<String> {
    vec![name.to_owned(), format!("{micros:.0} µs")]
}

/// The peak of this process's resident memory, on a system that has `/proc`.
pub(super) fn rss_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}
