//! One stage of a run: a host delivers all events of the table.

use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::dispatcher::{DispatcherConfig, Unroutable};
use outbox::event::Route;
use outbox::poller::PollerConfig;
use outbox::purge::PurgeConfig;
use outbox::sink::{Message, Sink, Sinks};
use outbox::store::Index;
use outbox::wasm;
use outbox::{DispatchResult, Event, Failure, Mode, Outbox, OutboxBuilder, Registration, RelayConfig, TransactionalStore};

use crate::output::number;
use crate::telemetry::Telemetry;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a user can do when events are not delivered.
pub(super) const WHAT_TO_DO: &str =
    "stop other programs that use the table outbox_bench, and run it again with --log info to see what the host does";
/// How long a stage may go without a delivery.
const PATIENCE: Duration = Duration::from_secs(60);
/// Fewest events that are with a relay at once.
const RELAYING: usize = 256;

/// The table of the benchmark, and what all stages share.
pub(super) struct Bench<S> {
    pub(super) store: S,
    pub(super) events: u32,
    pub(super) payload: String,
    pub(super) workers: usize,
    /// Whether the table was filled for all stages, so that it is not emptied between them.
    pub(super) is_prefilled: bool,
    telemetry: Option<Telemetry>,
}

/// How long an instance of the plugin lives.
#[derive(Clone, Copy)]
pub(super) enum Isolation {
    Event,
    Batch,
    Worker,
}

impl Isolation {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Event => "plugin, fresh for each event",
            Self::Batch => "plugin, fresh for each batch",
            Self::Worker => "plugin, kept by each worker",
        }
    }
}

impl<S: TransactionalStore + Clone> Bench<S> {
    pub(super) async fn open(
        store: S,
        events: u32,
        payload_bytes: u32,
        workers: usize,
        telemetry: Option<Telemetry>,
    ) -> Result<Self, Error> {
        let filler = "x".repeat(usize::try_from(payload_bytes)?.saturating_sub(2));
        let bench = Self { store, events, payload: format!("\"{filler}\""), workers, is_prefilled: false, telemetry };
        // An earlier run that was interrupted has left its table.
        bench.recreate().await?;
        Ok(bench)
    }

    /// Drops the table and creates it again.
    pub(super) async fn recreate(&self) -> Result<(), Error> {
        while self.store.migrate_down().await?.is_some() {}
        self.store.migrate_up().await?;
        Ok(())
    }

    /// Drops the table.
    pub(super) async fn close(&self) -> Result<(), Error> {
        while self.store.migrate_down().await?.is_some() {}
        self.store.close().await;
        Ok(())
    }

    /// Fills the table, and delivers all events to a native listener that does nothing. Returns the rate.
    pub(super) async fn native(&self) -> Result<f64, Error> {
        self.fill().await?;
        self.drain(with_native(self.host())?).await
    }

    /// As [`native`](Self::native), with events of 1,000 aggregates, and in order by aggregate.
    pub(super) async fn native_in_order(&self) -> Result<f64, Error> {
        self.fill_aggregates().await?;
        self.store.add_index(Index::OrderedByAggregate).await?;
        self.drain(with_native(self.host().mode(Mode::OrderedByAggregate))?).await
    }

    /// As [`native`](Self::native), to the plugin in this file.
    pub(super) async fn plugin(&self, file: &Path, isolation: Isolation) -> Result<f64, Error> {
        self.fill().await?;
        let isolation = match isolation {
            Isolation::Event => wasm::Isolation::Event,
            Isolation::Batch => wasm::Isolation::Batch,
            Isolation::Worker => wasm::Isolation::Worker { max_calls: 1_000 },
        };
        let engine = wasm::Engine::new(self.workers, wasm::PagemapScan::Auto)?;
        let manifest = wasm::Manifest { isolation, ..wasm::Manifest::default() };
        let listeners = wasm::load_listener(&engine, file, manifest).await?;
        self.drain(listeners.into_iter().fold(self.host(), OutboxBuilder::registration)).await
    }

    /// As [`native`](Self::native), to a relay to this sink. A call waits for the sink, so many are made at once.
    pub(super) async fn relay(&self, sink: Arc<dyn Sink>) -> Result<f64, Error> {
        self.fill().await?;
        let event = Arc::new(Event::of(self.envelope("Noop")?).build());
        // A sink that is down is reported at once: a host keeps its events until the sink is back.
        for answer in sink.send(&[Message::of_event(&event)]).await {
            answer?;
        }
        let sinks = Sinks::default().with("relayed", sink);
        let host = self.host().workers(self.workers.max(RELAYING)).sinks(sinks);
        self.drain(host.relay(("Bench", "Noop"), RelayConfig::to("relayed"))).await
    }

    /// A host without listeners, in the mode `single_node`.
    pub(super) fn host(&self) -> OutboxBuilder<S> {
        // No listener answers the route of the parked events in a filled table; they must stay parked.
        let dispatcher = DispatcherConfig { unroutable: Unroutable::Park, ..DispatcherConfig::default() };
        let builder = Outbox::single_node(self.store.clone())
            .dispatcher(dispatcher)
            .workers(self.workers)
            .poller(PollerConfig { interval: Duration::from_millis(250), ..PollerConfig::default() })
            .purge(PurgeConfig { enabled: false, ..PurgeConfig::default() });
        self.telemetry.iter().fold(builder, |builder, telemetry| builder.telemetry(telemetry.exporter()))
    }

    /// Starts this host and waits until it has stored the last outcome. Returns the rate.
    async fn drain(&self, host: OutboxBuilder<S>) -> Result<f64, Error> {
        let started = Instant::now();
        let host = host.start().await?;
        let delivered = until_delivered(slice::from_ref(&host), self.events).await;
        let took = started.elapsed();
        host.shutdown().await;
        delivered?;
        Ok(f64::from(self.events) / took.as_secs_f64())
    }
}

/// Adds a native listener that does nothing.
pub(super) fn with_native<S: TransactionalStore + Clone>(host: OutboxBuilder<S>) -> Result<OutboxBuilder<S>, Error> {
    async fn done(_: Arc<Event>) -> Result<DispatchResult, Failure> {
        Ok(DispatchResult::Done)
    }
    Ok(host.registration(Registration::new(Route::new("Bench", "Noop")?, done)))
}

/// Waits until these hosts together have delivered this many events and have none in hand.
///
/// # Errors
/// When a listener answers an event with anything but done, and when nothing was delivered for [`PATIENCE`].
pub(super) async fn until_delivered<S: TransactionalStore + Clone>(hosts: &[Outbox<S>], events: u32) -> Result<(), Error> {
    let mut progress = Progress { delivered: 0, since: Instant::now() };
    loop {
        let (mut delivered, mut not_done) = (0, 0);
        for host in hosts {
            let counts = host.metrics().counts();
            delivered += counts.dispatch_success;
            not_done += counts.dispatch_failure + counts.dispatch_dead + counts.dispatch_parked;
        }
        let in_hand: usize = hosts.iter().map(Outbox::in_flight).sum();
        if delivered >= u64::from(events) && in_hand == 0 {
            return Ok(());
        }
        if not_done > 0 {
            let why = "the listener did not answer every event with done; a plugin must answer Bench/Noop, \
                       and a sink must accept every message";
            return Err(why.into());
        }
        if progress.has_stopped(delivered, Instant::now()) {
            return Err(stopped(delivered, events, in_hand).into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn stopped(delivered: u64, events: u32, in_hand: usize) -> String {
    let (delivered, events, seconds) = (number(delivered), number(events.into()), PATIENCE.as_secs());
    format!(
        "{delivered} of {events} events were delivered, {in_hand} are in flight, and no event was delivered for {seconds} s; \
         {WHAT_TO_DO}"
    )
}

/// How many events were delivered, and since when that number has not changed.
struct Progress {
    delivered: u64,
    since: Instant,
}

impl Progress {
    /// Whether the number has not changed for [`PATIENCE`].
    fn has_stopped(&mut self, delivered: u64, now: Instant) -> bool {
        if delivered != self.delivered {
            *self = Self { delivered, since: now };
        }
        now.saturating_duration_since(self.since) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_stops_when_nothing_was_delivered_for_a_minute_and_not_before() {
        let begun = Instant::now();
        let mut progress = Progress { delivered: 0, since: begun };
        let mut has_stopped = |delivered, seconds| progress.has_stopped(delivered, begun + Duration::from_secs(seconds));

        assert!(!has_stopped(0, 59));
        assert!(!has_stopped(1, 61), "an event was delivered");
        assert!(!has_stopped(1, 120));
        assert!(has_stopped(1, 121));
    }

    #[test]
    fn a_stage_that_stopped_says_how_far_it_came_and_what_to_do() {
        let said = stopped(12, 1_000, 3);
        assert!(said.starts_with("12 of 1,000 events were delivered, 3 are in flight"), "{said}");
        assert!(said.contains("for 60 s; stop other programs"), "{said}");
    }
}
