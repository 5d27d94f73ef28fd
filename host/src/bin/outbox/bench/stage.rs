//! Filling the table, and draining it with one kind of listener.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::dispatcher::{DispatcherConfig, Unroutable};
use outbox::event::{Envelope, OwnerId, Route};
use outbox::poller::PollerConfig;
use outbox::purge::PurgeConfig;
use outbox::sink::{Message, Sink, Sinks};
use outbox::store::{ClaimRequest, Claimed, PARTITIONS, ReadRequest, Settled, Settlement};
use outbox::telemetry::Telemetry;
use outbox::wasm;
use outbox::{DispatchResult, Event, Failure, Mode, Outbox, OutboxBuilder, Registration, RelayConfig, TransactionalStore};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

/// A table of its own, and how much is put into it.
pub(super) struct Bench<S> {
    pub(super) store: S,
    pub(super) events: u32,
    payload: String,
    pub(super) workers: usize,
    /// Whether the table was filled before the stages; then it is kept from one to the next.
    crowded: bool,
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
    pub(super) const ALL: [Self; 3] = [Self::Event, Self::Batch, Self::Worker];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Event => "plugin, fresh for each event",
            Self::Batch => "plugin, fresh for each batch",
            Self::Worker => "plugin, kept by each worker",
        }
    }
}

/// Most events, and most bytes, that are taken at a time, as by a host.
const BATCH: u32 = 500;
const MAX_BYTES: usize = 32 << 20;
/// Batches that wait for their settling: the two go side by side, as in a host.
const AHEAD: usize = 2;
/// Settlings side by side, as in a host.
const SETTLERS: usize = 2;
/// Fewest events that are with a relay at once.
const RELAYING: usize = 256;
/// Aggregates that ordered events are spread over.
const AGGREGATES: u32 = 1_000;

impl<S: TransactionalStore + Clone> Bench<S> {
    pub(super) async fn open(
        store: S,
        events: u32,
        payload_bytes: u32,
        workers: usize,
        telemetry: Option<Telemetry>,
    ) -> Result<Self, Error> {
        let filler = "x".repeat(usize::try_from(payload_bytes)?.saturating_sub(2));
        let bench = Self { store, events, payload: format!("\"{filler}\""), workers, crowded: false, telemetry };
        // What an earlier run that was cut off has left goes too.
        bench.empty().await?;
        Ok(bench)
    }

    /// Makes the table anew.
    async fn empty(&self) -> Result<(), Error> {
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

    pub(super) fn envelope(&self) -> Result<Envelope, Error> {
        self.of_type("Noop")
    }

    pub(super) fn of_type(&self, event_type: &str) -> Result<Envelope, Error> {
        Ok(Envelope::new(event_type).aggregate_type("Bench").json_text(self.payload.clone())?)
    }

    /// An event of one of the aggregates.
    fn of_aggregate(&self, number: u32) -> Result<Envelope, Error> {
        let aggregate = (number % AGGREGATES).to_string();
        Ok(Envelope::new("Noop").aggregate("Bench", aggregate).json_text(self.payload.clone())?)
    }

    /// Puts the events in, 1,000 in each transaction. Returns the rate. A table that was not crowded is empty before: each
    /// stage begins on the same ground, and no later one pays for the rows and the rubbish of those before it.
    pub(super) async fn fill(&self) -> Result<f64, Error> {
        self.clear().await?;
        self.write(self.events, |_| self.envelope()).await
    }

    /// As [`fill`](Self::fill), with events of a thousand aggregates, in turns.
    pub(super) async fn fill_aggregates(&self) -> Result<f64, Error> {
        self.clear().await?;
        self.write(self.events, |number| self.of_aggregate(number)).await
    }

    /// Leaves so many finished and so many parked events in the table. The parked ones are of a route that no listener of the
    /// benchmark answers, or they would be delivered.
    pub(super) async fn crowd(&mut self, finished: u32, parked: u32) -> Result<(), Error> {
        self.crowded = true;
        if finished > 0 {
            self.write(finished, |_| self.envelope()).await?;
            self.claim_and_settle(finished, &Settlement::Done).await?;
        }
        if parked > 0 {
            self.write(parked, |_| self.of_type("Parked")).await?;
            self.claim_and_settle(parked, &Settlement::Parked { reason: "for the benchmark".to_owned() }).await?;
        }
        Ok(())
    }

    /// Puts the events of a slow route in.
    pub(super) async fn fill_slow(&self, events: u32) -> Result<(), Error> {
        self.clear().await?;
        self.write(events, |_| self.of_type("Slow")).await?;
        Ok(())
    }

    /// Puts the events in so that all of them are due at this time.
    pub(super) async fn fill_due(&self, due_at: Instant) -> Result<(), Error> {
        let later = |_| {
            let left = due_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the events could not be written before they were due".into());
            }
            Ok(self.envelope()?.with(|envelope| envelope.deliver_after(left))?)
        };
        self.write(self.events, later).await?;
        Ok(())
    }

    /// Leaves a dead event of one aggregate in the table, and so many behind it.
    pub(super) async fn block(&mut self, events: u32) -> Result<(), Error> {
        self.crowded = true;
        let blocked = |_| Ok(self.of_type("Blocked")?.with(|envelope| envelope.aggregate_id("blocked"))?);
        self.write(1, blocked).await?;
        let mut first = self.store.claim(&self.claiming(1)).await?;
        let head = first.pop().ok_or("the event that was just written is missing")?.fence;
        let error = "for the benchmark".to_owned();
        self.store.settle(&[Settled::new(head, Settlement::Dead { error, counted: true, blocks: true })]).await?;
        self.write(events, blocked).await?;
        self.claim_and_settle(events, &Settlement::Behind { sequence: head.sequence }).await?;
        Ok(())
    }

    pub(super) async fn clear(&self) -> Result<(), Error> {
        if self.crowded { Ok(()) } else { self.empty().await }
    }

    async fn write(&self, events: u32, envelope: impl Fn(u32) -> Result<Envelope, Error>) -> Result<f64, Error> {
        let outbox = Outbox::writer_only(self.store.clone()).start().await?;
        let started = Instant::now();
        let mut left = events;
        while left > 0 {
            let count = left.min(1_000);
            let envelopes = (0..count).map(&envelope).collect::<Result<Vec<_>, _>>()?;
            let mut transaction = outbox.begin().await?;
            transaction.write_all(envelopes).await?;
            transaction.commit().await?;
            left -= count;
        }
        let rate = f64::from(events) / started.elapsed().as_secs_f64();
        outbox.shutdown().await;
        Ok(rate)
    }

    /// Claims each row and settles it, the two side by side. Returns the rate.
    pub(super) async fn by_claims(&self) -> Result<f64, Error> {
        self.claim_and_settle(self.events, &Settlement::Done).await
    }

    /// Reads what an owner of all partitions has to deliver, without a claim, and settles it, the two side by side. Returns the
    /// rate.
    pub(super) async fn by_reads(&self) -> Result<f64, Error> {
        let (owner, lease) = (OwnerId::generate("bench"), Duration::from_secs(600));
        let held = self.store.keep_partitions(&owner, lease, PARTITIONS, PARTITIONS).await?;
        let partitions: Vec<u16> = held.iter().map(|partition| partition.number).collect();
        let request = ReadRequest {
            owner: owner.clone(),
            partitions: partitions.clone(),
            after: None,
            held: Vec::new(),
            busy: Vec::new(),
            limit: BATCH,
            max_bytes: MAX_BYTES,
            skip_recent: Duration::ZERO,
            order: None,
        };
        let rate = self.settled_beside(self.events, &Settlement::Done, Taking::Reads(request)).await?;
        self.store.release_partitions(&owner, &partitions).await?;
        Ok(rate)
    }

    async fn claim_and_settle(&self, events: u32, settlement: &Settlement) -> Result<f64, Error> {
        self.settled_beside(events, settlement, Taking::Claims(self.claiming(BATCH))).await
    }

    fn claiming(&self, limit: u32) -> ClaimRequest {
        ClaimRequest {
            owner: OwnerId::generate("bench"),
            lease: Duration::from_secs(30),
            limit,
            max_bytes: MAX_BYTES,
            skip_recent: Duration::ZERO,
            order: None,
        }
    }

    /// Takes batches until so many events were taken, and settles them meanwhile. Returns the rate.
    async fn settled_beside(&self, events: u32, settlement: &Settlement, mut taking: Taking) -> Result<f64, Error> {
        let started = Instant::now();
        let (claimed, to_settle) = mpsc::channel::<Vec<Claimed>>(AHEAD);
        let to_settle = Arc::new(Mutex::new(to_settle));
        let mut settling = JoinSet::new();
        for _ in 0..SETTLERS {
            settling.spawn(settle_all(self.store.clone(), to_settle.clone(), settlement.clone()));
        }
        drop(to_settle);
        let mut left = events;
        while left > 0 {
            let batch = taking.next(&self.store).await?;
            if batch.is_empty() {
                return Err("events are missing from the bench's table; is another host draining it?".into());
            }
            left = left.saturating_sub(u32::try_from(batch.len())?);
            // Fails only when the settling has; its error is the one to tell.
            if claimed.send(batch).await.is_err() {
                break;
            }
        }
        drop(claimed);
        while let Some(settled) = settling.join_next().await {
            settled??;
        }
        Ok(f64::from(events) / started.elapsed().as_secs_f64())
    }

    /// As [`drain`](Self::drain), one event of an aggregate after the other.
    pub(super) async fn drain_in_order(&self, registrations: Vec<Registration>) -> Result<f64, Error> {
        self.run(Mode::OrderedByAggregate, registrations).await
    }

    /// Lets a host drain everything through one listener, until the last outcome is stored. Returns the rate.
    pub(super) async fn drain(&self, registrations: Vec<Registration>) -> Result<f64, Error> {
        self.run(Mode::SingleNode, registrations).await
    }

    /// As [`drain`](Self::drain), through a relay to a sink. A call waits for the sink, so there are many at once.
    pub(super) async fn relay(&self, sink: Arc<dyn Sink>) -> Result<f64, Error> {
        let event = Arc::new(Event::of(self.envelope()?).build());
        // Told now: the events of a sink that is down wait for ever.
        for answer in sink.send(&[Message::of_event(&event)]).await {
            answer?;
        }
        let sinks = Sinks::default().with("relayed", sink);
        let builder = self.builder(Mode::SingleNode).workers(self.workers.max(RELAYING)).sinks(sinks);
        self.emptied_by(builder.relay(("Bench", "Noop"), RelayConfig::to("relayed"))).await
    }

    async fn run(&self, mode: Mode, registrations: Vec<Registration>) -> Result<f64, Error> {
        let mut builder = self.builder(mode);
        for registration in registrations {
            builder = builder.registration(registration);
        }
        self.emptied_by(builder).await
    }

    fn builder(&self, mode: Mode) -> OutboxBuilder<S> {
        self.host().mode(mode)
    }

    /// A host without listeners, in the mode for one host.
    pub(super) fn host(&self) -> OutboxBuilder<S> {
        // Without a listener for the parked events of a crowded table, they are given up otherwise.
        let dispatcher = DispatcherConfig { unroutable: Unroutable::Park, ..DispatcherConfig::default() };
        let builder = Outbox::single_node(self.store.clone())
            .dispatcher(dispatcher)
            .workers(self.workers)
            .poller(PollerConfig { interval: Duration::from_millis(250), ..PollerConfig::default() })
            .purge(PurgeConfig { enabled: false, ..PurgeConfig::default() });
        self.telemetry.iter().fold(builder, |builder, telemetry| builder.telemetry(telemetry))
    }

    async fn emptied_by(&self, builder: OutboxBuilder<S>) -> Result<f64, Error> {
        let started = Instant::now();
        let outbox = builder.start().await?;
        while outbox.metrics().counts().dispatch_success < u64::from(self.events) || outbox.in_flight() > 0 {
            let counts = outbox.metrics().counts();
            if counts.dispatch_failure + counts.dispatch_dead + counts.dispatch_parked > 0 {
                let why = "the listener did not answer every event with done; a plugin must answer Bench/Noop";
                return Err(why.into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = f64::from(self.events) / started.elapsed().as_secs_f64();
        outbox.shutdown().await;
        Ok(rate)
    }
}

/// How batches are taken.
enum Taking {
    Claims(ClaimRequest),
    /// From where the last one ended.
    Reads(ReadRequest),
}

impl Taking {
    async fn next<S: TransactionalStore>(&mut self, store: &S) -> Result<Vec<Claimed>, outbox::StoreError> {
        match self {
            Self::Claims(request) => store.claim(request).await,
            Self::Reads(request) => {
                let read = store.read(request).await?;
                request.after = read.last().map(|last| last.position);
                Ok(read.into_iter().map(|read| read.event).collect())
            }
        }
    }
}

async fn settle_all<S: TransactionalStore>(
    store: S,
    claimed: Arc<Mutex<mpsc::Receiver<Vec<Claimed>>>>,
    settlement: Settlement,
) -> Result<(), outbox::StoreError> {
    loop {
        let received = claimed.lock().await.recv().await;
        let Some(batch) = received else { return Ok(()) };
        let settled: Vec<Settled> = batch.iter().map(|claimed| Settled::new(claimed.fence, settlement.clone())).collect();
        store.settle(&settled).await?;
    }
}

/// A native listener that does nothing.
pub(super) fn native() -> Result<Vec<Registration>, Error> {
    async fn done(_: Arc<Event>) -> Result<DispatchResult, Failure> {
        Ok(DispatchResult::Done)
    }
    Ok(vec![Registration::new(Route::new("Bench", "Noop")?, done)])
}

/// The plugin, loaded with one kind of isolation.
pub(super) async fn plugin(file: &Path, isolation: Isolation, workers: usize) -> Result<Vec<Registration>, Error> {
    let isolation = match isolation {
        Isolation::Event => wasm::Isolation::Event,
        Isolation::Batch => wasm::Isolation::Batch,
        Isolation::Worker => wasm::Isolation::Worker { max_calls: 1_000 },
    };
    let engine = wasm::Engine::new(workers, wasm::PagemapScan::Auto)?;
    Ok(wasm::load_listener(&engine, file, wasm::Manifest { isolation, ..wasm::Manifest::default() }).await?)
}
