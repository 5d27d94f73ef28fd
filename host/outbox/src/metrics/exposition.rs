//! Which metrics there are: names, labels, and what is told of each. The names are relied on from outside.

use std::sync::Arc;

use outbox_event::{PluginStatus, SinkStatus};

use super::prometheus;
use super::sampler::Sample;
use super::snapshot::{MetricType, Snapshot};
use super::{Metrics, RouteTotals, Routes};
use crate::store::{StalledRoute, Stats};
use crate::time::system_clock;

/// The metrics of one host at one moment.
pub(crate) struct Exposition<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) metrics: &'a Metrics,
    /// The kind of database.
    pub(crate) database: &'static str,
    pub(crate) mode: &'static str,
    /// Events in the hot queue and in the cold one.
    pub(crate) queued: (usize, usize),
    pub(crate) in_flight: usize,
    /// What the table was last seen to hold; `None` where nobody looks.
    pub(crate) sample: Option<Sample>,
    /// The sinks, as this host sees them.
    pub(crate) sinks: Vec<SinkStatus>,
    /// The plugins of this host.
    pub(crate) plugins: Vec<PluginStatus>,
    /// What became of spans; `None` where none are exported.
    #[cfg(feature = "otel")]
    pub(crate) spans: Option<&'a super::span_counts::SpanCounts>,
}

impl Exposition<'_> {
    /// The text for Prometheus.
    pub(crate) fn text(&self) -> String {
        prometheus::text(self.prefix, self.snapshot())
    }

    /// All metrics.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.host(&mut snapshot);
        self.sinks(&mut snapshot);
        self.table(&mut snapshot);
        self.counters(&mut snapshot);
        self.routes(&mut snapshot);
        self.plugins(&mut snapshot);
        #[cfg(feature = "otel")]
        self.spans(&mut snapshot);
        snapshot
    }

    fn host(&self, snapshot: &mut Snapshot) {
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("database", self.database), ("mode", self.mode)];
        snapshot
            .family("build_info", MetricType::Gauge, "Always 1: the version of the host, its kind of database and its mode.")
            .series(&labels, true);
        snapshot
            .family("queue_depth", MetricType::Gauge, "Events that wait in this host's memory for a worker, by queue.")
            .series(&[("queue", "hot")], self.queued.0)
            .series(&[("queue", "cold")], self.queued.1);
        snapshot
            .family(
                "in_flight",
                MetricType::Gauge,
                "Events in this host's hands: queued, with a listener, or waiting for their outcome to be stored.",
            )
            .series(&[], self.in_flight);
        let apart = &self.metrics.outcomes_apart;
        snapshot
            .family(
                "outcomes_apart",
                MetricType::Gauge,
                "Outcomes that wait: their rows are locked by another transaction, the database refuses them, or it has been slow to \
                 store their batch for 10 s. Their events are not delivered again meanwhile.",
            )
            .series(&[("obstacle", "locked")], u64::try_from(apart.locked()).unwrap_or(u64::MAX))
            .series(&[("obstacle", "refused")], apart.refused())
            .series(&[("obstacle", "slow")], apart.slow());
        let stalls = &self.metrics.stalls;
        snapshot
            .family(
                "aside",
                MetricType::Gauge,
                "1 while this host takes no partitions, since another host can probably deliver more.",
            )
            .series(&[], stalls.is_aside());
        let (now, stalled) = (system_clock().now(), stalls.routes());
        let seconds = snapshot.family(
            "stalled_seconds",
            MetricType::Gauge,
            "Seconds since an event of a route was answered last on this host, while its sink is down or the breaker of its listener is \
             open, and while the host stands aside for that. `*/*` without a listener: it cannot read the table or store outcomes. Absent \
             otherwise.",
        );
        for one in stalled.iter().take(StalledRoute::NAMED) {
            let route = if one.is_all() { "*/*" } else { &one.route };
            seconds.series(&[("route", route), ("listener", &one.listener)], now.since(one.since).as_secs_f64());
        }
    }

    fn sinks(&self, snapshot: &mut Snapshot) {
        let available = snapshot.family(
            "sink_available",
            MetricType::Gauge,
            "0 while this host finds the sink down; 1 otherwise, also while it is unconfirmed.",
        );
        for sink in &self.sinks {
            available.series(&[("sink", sink.name.as_str())], !sink.is_down());
        }
    }

    fn table(&self, snapshot: &mut Snapshot) {
        let Some(sample) = &self.sample else { return };
        snapshot
            .family("sample_success", MetricType::Gauge, "1 when the last look at the table succeeded, 0 when it did not.")
            .series(&[], sample.succeeded);
        let stats = sample.stats.as_ref();
        let records = snapshot.family(
            "records",
            MetricType::Gauge,
            "Events in the table, the same for every host; at most 100000 of each kind are counted, new and retry together. Absent \
             while the table cannot be looked at.",
        );
        let by_status = |stats: &Stats| {
            [
                ("new", stats.new),
                ("retry", stats.retry),
                ("parked", stats.parked),
                ("blocked", stats.blocked),
                ("done", stats.done),
                ("dead", stats.dead),
            ]
        };
        for (status, count) in stats.map(by_status).into_iter().flatten() {
            records.series(&[("status", status)], count);
        }
        let oldest = snapshot.family(
            "oldest_pending_seconds",
            MetricType::Gauge,
            "How long the oldest due event has waited, by cause, without delays that were asked for; 0 when none waits. Absent \
             while the table cannot be looked at.",
        );
        for (cause, seconds) in stats.into_iter().flat_map(|stats| stats.oldest_pending_seconds.by_cause()) {
            oldest.series(&[("cause", cause)], seconds.unwrap_or(0.0));
        }
    }

    fn counters(&self, snapshot: &mut Snapshot) {
        let counts = self.metrics.counts();
        snapshot
            .family(
                "enqueued_total",
                MetricType::Counter,
                "Events put into a queue: straight after their commit (hot) or by the poller (cold).",
            )
            .series(&[("path", "hot")], counts.hot_enqueued)
            .series(&[("path", "cold")], counts.cold_enqueued);
        snapshot
            .family(
                "reads_total",
                MetricType::Counter,
                "How often the poller read due events, by result: as many events as requested, fewer, none, or an error.",
            )
            .series(&[("result", "full")], counts.reads_full)
            .series(&[("result", "partial")], counts.reads_partial)
            .series(&[("result", "empty")], counts.reads_empty)
            .series(&[("result", "failed")], counts.reads_failed);
        for (name, help, count) in [
            ("events_written_total", "Events written through this host.", counts.events_written),
            ("hot_dropped_total", "Events that found the hot queue full; the poller delivers them.", counts.hot_dropped),
            (
                "hot_skipped_delayed_total",
                "Events that the hot path left alone, since their delivery is put off.",
                counts.hot_skipped_delayed,
            ),
            ("dispatch_parked_total", "Events set aside until a listener is there.", counts.dispatch_parked),
            (
                "dispatch_released_total",
                "Claims given back without an outcome; nothing is counted against their events.",
                counts.dispatch_released,
            ),
            ("fenced_outcomes_total", "Outcomes dropped because another host held the event by then.", counts.fenced_outcomes),
            ("leases_lost_total", "Events whose lease ended before their listener was called or done.", counts.leases_lost),
            (
                "state_conflicts_total",
                "Answers of plugins that were asked for again, because a value that they had read was changed.",
                counts.state_conflicts,
            ),
            ("purged_total", "Old finished events deleted.", counts.purged),
            (
                "purge_undeletable_total",
                "Old events that the database did not delete; counted again by each purge.",
                counts.purge_undeletable,
            ),
        ] {
            snapshot.family(name, MetricType::Counter, help).series(&[], count);
        }
        let errors = snapshot.family(
            "db_errors_total",
            MetricType::Counter,
            "Statements that the database did not do, by kind of error.",
        );
        for (kind, count) in self.metrics.db_errors_by_kind.counts() {
            errors.series(&[("kind", kind)], count);
        }
    }

    fn routes(&self, snapshot: &mut Snapshot) {
        let routes = &self.metrics.routes;
        let totals = routes.totals();
        let named = totals.iter().map(|(route, totals)| (route.aggregate_type.as_str(), route.event_type.as_str(), totals));
        let totals: Vec<(&str, &str, &Arc<RouteTotals>)> =
            named.chain([(Routes::OTHER, Routes::OTHER, routes.other())]).collect();
        let dispatch = snapshot.family(
            "dispatch_total",
            MetricType::Counter,
            "Attempts by route and outcome: success, failure (tried again), dead (given up), deferred (the listener asked for later). \
             Events that no listener answers, and routes beyond metrics.max_routes, are counted as other.",
        );
        for &(aggregate_type, event_type, totals) in &totals {
            let outcomes = [
                ("success", &totals.success),
                ("failure", &totals.failure),
                ("dead", &totals.dead),
                ("deferred", &totals.deferred),
            ];
            for (outcome, counter) in outcomes {
                let labels = [("aggregate_type", aggregate_type), ("event_type", event_type), ("outcome", outcome)];
                dispatch.series(&labels, counter.get());
            }
        }
        let duration = snapshot.family(
            "dispatch_duration_seconds",
            MetricType::Histogram,
            "How long attempts took, from the call of the listener to its answer. Several events in one call have all of its time.",
        );
        for &(aggregate_type, event_type, totals) in &totals {
            duration.series(&[("aggregate_type", aggregate_type), ("event_type", event_type)], &totals.duration);
        }
        let lag = snapshot.family(
            "delivery_lag_seconds",
            MetricType::Histogram,
            "How long delivered events took, from when they could be delivered to the end of their last attempt.",
        );
        for &(aggregate_type, event_type, totals) in &totals {
            lag.series(&[("aggregate_type", aggregate_type), ("event_type", event_type)], &totals.lag);
        }
    }

    fn plugins(&self, snapshot: &mut Snapshot) {
        let loaded = snapshot.family(
            "plugin_loaded",
            MetricType::Gauge,
            "0 while the file of a plugin does not serve because it did not load, even if an older version serves; 1 otherwise, also while \
             it is being loaded.",
        );
        for plugin in &self.plugins {
            loaded.series(&[("plugin", plugin.name.as_str())], plugin.error.is_none());
        }
        let plugins = self.metrics.calls.of_plugins();
        let counts: Vec<_> = plugins.iter().map(|(name, totals)| (&**name, totals.counts())).collect();
        let calls = snapshot.family(
            "plugin_calls_total",
            MetricType::Counter,
            "Calls of a plugin; one for several events counts for each.",
        );
        for &(plugin, ref counts) in &counts {
            calls.series(&[("plugin", plugin)], counts.calls);
        }
        let took = snapshot.family(
            "plugin_call_seconds_total",
            MetricType::Counter,
            "Time that the calls of a plugin took, together.",
        );
        for &(plugin, ref counts) in &counts {
            took.series(&[("plugin", plugin)], counts.took.as_secs_f64());
        }
        // Its name was given without `_total`, which a counter must have.
        let fuel = snapshot.family(
            "plugin_fuel_used",
            MetricType::Gauge,
            "Fuel that the calls of a plugin used since the host started; it only grows.",
        );
        for &(plugin, ref counts) in &counts {
            fuel.series(&[("plugin", plugin)], counts.fuel_used);
        }
        let memory = snapshot.family(
            "plugin_memory_peak_bytes",
            MetricType::Gauge,
            "The most memory that one call of a plugin had since the host started.",
        );
        for &(plugin, ref counts) in &counts {
            memory.series(&[("plugin", plugin)], counts.memory_peak_bytes);
        }
        let traps = snapshot.family(
            "plugin_traps_total",
            MetricType::Counter,
            "Attempts that ended because a plugin broke or went beyond a limit, by reason.",
        );
        for (plugin, totals) in &plugins {
            for (reason, count) in totals.traps() {
                traps.series(&[("plugin", &**plugin), ("reason", reason)], count);
            }
        }
        let swaps = snapshot.family(
            "plugin_swaps_total",
            MetricType::Counter,
            "Changes of what serves as a plugin: loaded, swapped for another version, failed to load, put back to the last good \
             version, unloaded.",
        );
        for (plugin, totals) in &plugins {
            for (result, count) in totals.swaps() {
                swaps.series(&[("plugin", &**plugin), ("result", result)], count);
            }
        }
    }

    #[cfg(feature = "otel")]
    fn spans(&self, snapshot: &mut Snapshot) {
        let Some(spans) = self.spans else { return };
        snapshot
            .family(
                "spans_total",
                MetricType::Counter,
                "Finished spans, by what became of them: taken by the collector, or dropped, since it was away or too slow.",
            )
            .series(&[("result", "exported")], spans.exported.get())
            .series(&[("result", "dropped")], spans.dropped.get());
    }
}
