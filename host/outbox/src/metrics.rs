//! What the host counts, by name, and how it is shown to Prometheus.
//!
//! Counting is a relaxed addition in memory. What only the table knows is asked for by the sampler, at an interval of its own: a
//! count over a large table on every look would slow the table down.

mod config;
mod db_errors;
mod exposition;
mod outcomes_apart;
mod prometheus;
mod sampler;
mod snapshot;
#[cfg(feature = "otel")]
pub(crate) mod span_counts;
mod stall_gauge;
mod stuck_claims;

use std::sync::Arc;

pub use config::MetricsConfig;
pub use db_errors::DbErrors;
pub(crate) use exposition::Exposition;
use outbox_listener::Progress;
#[doc(inline)]
pub use outbox_listener::{CallCounts, CallTotals, Calls, Counter, Histogram, RouteTotals, Routes};
use outcomes_apart::OutcomesApart;
pub use prometheus::CONTENT_TYPE;
pub(crate) use sampler::{Sampled, Sampler};
use serde::Serialize;
#[cfg(feature = "otel")]
pub(crate) use snapshot::{Family, MetricType, Series, Snapshot, Value};
use stall_gauge::StallGauge;
use stuck_claims::StuckClaims;
pub(crate) use stuck_claims::Unchecked;

use crate::store::StoreError;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The counts of one host since it started.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $($(#[$doc])* pub $name: Counter,)+
            /// What the calls of each listener's owner cost.
            pub calls: Arc<Calls>,
            /// What became of the events of each route: the one place where outcomes are counted.
            pub routes: Arc<Routes>,
            /// Statements that the database did not do, by kind of error; `db_errors` is their sum.
            pub db_errors_by_kind: DbErrors,
            /// Outcomes that the database refuses or is slow to store.
            pub(crate) outcomes_apart: OutcomesApart,
            /// Due events that cannot be claimed although others can.
            pub(crate) stuck_claims: StuckClaims,
            /// Whether this host can store outcomes.
            pub(crate) storing: Progress,
            /// The routes that this host cannot deliver, and whether it stands aside for them.
            pub(crate) stalls: StallGauge,
        }

        /// The numbers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)+
            /// Attempts that ended well, on all routes.
            pub dispatch_success: u64,
            /// Attempts that failed and are tried again, on all routes.
            pub dispatch_failure: u64,
            /// Events given up, on all routes.
            pub dispatch_dead: u64,
            /// Attempts whose listener asked for later, on all routes.
            pub dispatch_deferred: u64,
        }

        impl Metrics {
            /// The numbers at this moment.
            #[must_use]
            pub fn counts(&self) -> Counts {
                let of_routes = |counter: fn(&RouteTotals) -> &Counter| self.routes.sum(counter);
                Counts {
                    $($name: self.$name.get(),)+
                    dispatch_success: of_routes(|totals| &totals.success),
                    dispatch_failure: of_routes(|totals| &totals.failure),
                    dispatch_dead: of_routes(|totals| &totals.dead),
                    dispatch_deferred: of_routes(|totals| &totals.deferred),
                }
            }
        }
    };
}

metrics! {
    /// Events written through this host.
    events_written,
    /// Events that went from their commit straight into the hot queue.
    hot_enqueued,
    /// Events that found the hot queue full; the poller takes them.
    hot_dropped,
    /// Events whose delivery was put off, so that the hot path left them alone.
    hot_skipped_delayed,
    /// Events that the poller put into the cold queue.
    cold_enqueued,
    /// Reads of the poller that returned as many events as it requested.
    reads_full,
    /// Reads that returned some events, but fewer than requested.
    reads_partial,
    /// Reads that returned no event.
    reads_empty,
    /// Reads that failed. Failed claims count in `db_errors` only.
    reads_failed,
    /// Events set aside until a listener is there.
    dispatch_parked,
    /// Claims that were given back without an outcome: the listener was paused, what it needs (room, memory, its sink, its
    /// rate) was used up or away, or its state had changed. Nothing is counted against their events.
    dispatch_released,
    /// Outcomes dropped because somebody else held the event by then.
    fenced_outcomes,
    /// Answers that were not taken, because a value of the plugin's state had changed since the listener read it; their events
    /// were delivered again.
    state_conflicts,
    /// Events whose lease ended before their listener was called or done.
    leases_lost,
    /// Statements that the database did not do.
    db_errors,
    /// Finished events deleted.
    purged,
    /// Old events that a purge could not delete; each purge counts them again.
    purge_undeletable,
}

impl Metrics {
    /// With separate labels for this many routes.
    pub(crate) fn for_routes(max_routes: usize) -> Self {
        Self { routes: Arc::new(Routes::new(max_routes)), ..Self::default() }
    }

    /// Counts a statement that the database did not do.
    pub(crate) fn db_error(&self, error: &StoreError) {
        self.db_errors.increment();
        self.db_errors_by_kind.count(error);
    }
}
