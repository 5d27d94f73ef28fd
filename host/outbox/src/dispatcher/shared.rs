//! The parts of the host that every worker uses.

use std::sync::Arc;

use super::DispatcherConfig;
use super::interceptor::Interceptor;
use super::overdue::Visits;
use crate::listener::{Listeners, RetryPolicy};
use crate::metrics::Metrics;
use crate::order::Order;
use crate::partition::Partitions;
use crate::queue::{AtWork, Delivery, Queue};
use crate::settlement::SettlementRules;
use crate::store::Store;
use crate::telemetry::Spans;

/// The parts of the host that every worker uses.
pub(crate) struct Shared {
    pub(crate) queue: Arc<Queue>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) config: DispatcherConfig,
    pub(crate) metrics: Arc<Metrics>,
    /// Counts the workers that are calling a listener.
    pub(crate) at_work: Arc<AtWork>,
    /// Counts the starts of events that are delivered alone.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) rules: SettlementRules,
    /// `None` in modes without order.
    pub(crate) order: Option<Arc<Order>>,
    pub(crate) visits: Arc<Visits>,
    /// Begins a span for each delivery if tracing is on.
    pub(crate) spans: Spans,
    /// Says whether this host lets its claims end.
    pub(crate) partitions: Arc<Partitions>,
}

impl Shared {
    /// Counts and logs a lease that this host lost before its event's outcome. The host writes nothing for this event: another host may have
    /// it.
    pub(super) fn lease_lost(&self, delivery: &Delivery, when: LostWhen) {
        self.metrics.leases_lost.increment();
        let (event, when) = (&delivery.event, when.text());
        tracing::warn!(
            event.id = %event.id(), route = %event.route(), attempt = event.attempt(), when,
            "lease lost; the host that holds the event redelivers it, unless it was deleted"
        );
    }
}

/// When a lease was lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum LostWhen {
    BeforeCall,
    DuringCall,
}

impl LostWhen {
    fn text(self) -> &'static str {
        match self {
            Self::BeforeCall => "before the call",
            Self::DuringCall => "during the call",
        }
    }
}
