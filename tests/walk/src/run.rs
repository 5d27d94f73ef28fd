//! One run: hosts that start, stop and die, writers, and somebody who locks rows; then a database that is well again, and what must have
//! come of it all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbox::dispatcher::{DispatcherConfig, Unroutable};
use outbox::event::OwnerId;
use outbox::listener::{BreakerConfig, Exponential};
use outbox::poller::PollerConfig;
use outbox::purge::PurgeConfig;
use outbox::store::{Audit, ClaimRequest, Node, Record, Settled, Settlement};
use outbox::{Envelope, EventId, Mode, Outbox, OutboxBuilder, Status};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::again;
use crate::calls::End;
use crate::chance::Chance;
use crate::listener::{Actor, ROUTES};
use crate::plan::Plan;
use crate::store::MemoryStore;
use crate::table::is_unfinished;
use crate::world::{Life, Shared, World, lock};

/// How long after all faults every event must have ended.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How long a new event may take then.
const PROBE_PATIENCE: Duration = Duration::from_secs(300);

/// What a run came to.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) violation: Option<String>,
    pub(crate) history: Vec<String>,
    pub(crate) sum: u64,
    pub(crate) events: usize,
    pub(crate) calls: usize,
    pub(crate) repeats: usize,
    /// How long it took by the clock that was paused.
    pub(crate) passed: Duration,
}

/// Runs a plan to its end.
pub(crate) async fn run(plan: Plan) -> Report {
    again::began();
    let world = World::new(plan.clone());
    let stage = Arc::new(Stage::new(world.clone(), &plan));
    stage.chaos().await;
    stage.recover().await;
    stage.stop_all().await;
    let mut world = lock(&world);
    world.look_back();
    Report {
        violation: world.violation.clone(),
        history: world.history().to_vec(),
        sum: world.sum,
        events: world.table.rows.len(),
        calls: world.calls.all.len(),
        repeats: world.calls.repeats(),
        passed: again::elapsed(),
    }
}

/// The places for hosts, and what the writers share.
struct Stage {
    world: Shared,
    plan: Plan,
    /// What runs in each place.
    places: Vec<Mutex<Place>>,
    /// Who was killed. Nothing of it goes on, since its store answers no more, but a handle that is dropped would be a stop.
    dead: Mutex<Vec<Outbox<MemoryStore>>>,
    /// Tasks that may not end by themselves: of the writers in each life.
    writers: Mutex<Vec<(usize, JoinHandle<()>)>>,
    /// Starts and stops.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Who writes events of an aggregate waits for the others, as transactions that change it do.
    aggregates: Vec<Arc<tokio::sync::Mutex<()>>>,
    next_id: Mutex<usize>,
}

/// What runs in a place: a life, and its outbox.
type Place = Option<(usize, Outbox<MemoryStore>)>;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Write { events: usize },
    Kill { place: usize },
    Restart { place: usize },
    Lock { rows: usize, span: Duration },
    BreakSession { place: usize },
    Claimer { span: Duration },
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    fn new(world: Shared, plan: &Plan) -> Self {
        Self {
            world,
            plan: plan.clone(),
            places: (0..plan.hosts).map(|_| Mutex::new(None)).collect(),
            dead: Mutex::default(),
            writers: Mutex::default(),
            tasks: Mutex::default(),
            aggregates: (0..plan.aggregates).map(|_| Arc::default()).collect(),
            next_id: Mutex::default(),
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Everything that goes wrong, in order of time.
    fn script(&self) -> Vec<(Duration, Event)> {
        let Plan { chaos, faults, events, hosts, lease, mode, .. } = &self.plan;
        let chance = &mut Chance::of(self.plan.seed, 8);
        let mut script = Vec::new();
        let mut written = 0;
        while written < *events {
            let count = chance.index(4) + 1;
            written += count;
            script.push((chance.at(*chaos), Event::Write { events: count }));
        }
        for _ in 0..faults.kills {
            script.push((chance.at(*chaos), Event::Kill { place: chance.index(*hosts) }));
        }
        for _ in 0..faults.restarts {
            script.push((chance.at(*chaos), Event::Restart { place: chance.index(*hosts) }));
        }
        for _ in 0..faults.locks {
            script.push((chance.at(*chaos), Event::Lock { rows: chance.index(3) + 1, span: chance.millis(10..20_000) }));
        }
        for _ in 0..faults.lost_sessions {
            script.push((chance.at(*chaos), Event::BreakSession { place: chance.index(*hosts) }));
        }
        if faults.claimer && matches!(mode, Mode::SingleNode | Mode::MultiNode) {
            script.push((chance.at(*chaos), Event::Claimer { span: 2 * *lease }));
        }
        script.sort_by_key(|(at, _)| *at);
        script
    }

    /// Until all faults are over.
    async fn chaos(self: &Arc<Self>) {
        for place in 0..self.plan.hosts {
            self.clone().start(place, Duration::ZERO);
        }
        for (at, event) in self.script() {
            sleep(at.saturating_sub(again::elapsed())).await;
            self.clone().let_happen(event);
        }
        sleep(self.plan.chaos.saturating_sub(again::elapsed())).await;
        // The longest storm ends then.
        let over = self.plan.faults.storms.iter().map(|storm| storm.to).max().unwrap_or_default();
        sleep(over.saturating_sub(again::elapsed())).await;
        let mut world = self.world();
        world.healed.send_replace(true);
        world.note("the database is well from now on");
    }

    fn let_happen(self: Arc<Self>, event: Event) {
        match event {
            Event::Write { events } => self.write(events),
            Event::Kill { place } => self.kill(place),
            Event::Restart { place } => self.restart(place),
            Event::Lock { rows, span } => {
                let mut world = self.world();
                let unfinished: Vec<u64> =
                    world.table.rows.values().filter(|row| is_unfinished(row)).map(|row| row.seq).collect();
                for _ in 0..rows.min(unfinished.len()) {
                    let index = world.chance.index(unfinished.len());
                    world.locked.insert(unfinished[index], Instant::now() + span);
                    world.note(format!("somebody locks row {} for {span:?}", unfinished[index]));
                }
            }
            Event::BreakSession { place } => {
                let Some(life) = locked(&self.places[place]).as_ref().map(|(life, _)| *life) else { return };
                let mut world = self.world();
                let line = format!("the session of {} breaks", world.name(life));
                world.note(line);
                world.failed(life);
                let owner = world.lives[life].owner.clone().unwrap_or_default();
                world.break_session(&owner, None);
            }
            Event::Claimer { span } => {
                let stage = self.clone();
                self.keep(tokio::spawn(async move { stage.claim_as_of_old(span).await }));
            }
        }
    }

    fn keep(&self, task: JoinHandle<()>) {
        locked(&self.tasks).push(task);
    }

    /// Starts a host, again and again until it does.
    fn start(self: Arc<Self>, place: usize, after: Duration) {
        let stage = self.clone();
        self.keep(tokio::spawn(async move {
            sleep(after).await;
            loop {
                let life = {
                    let mut world = stage.world();
                    let lacks_route = stage.lacks_route(place, world.is_healed());
                    world.lives.push(Life { place, owner: None, killed: false, stops: false, failed_at: None, lacks_route });
                    world.lives.len() - 1
                };
                match stage.builder(life).start().await {
                    Ok(outbox) => {
                        let mut world = stage.world();
                        world.lives[life].owner = Some(outbox.owner().as_str().to_owned());
                        let line = format!("{} starts", world.name(life));
                        world.note(line);
                        *locked(&stage.places[place]) = Some((life, outbox));
                        return;
                    }
                    Err(_) => sleep(Duration::from_millis(500)).await,
                }
            }
        }));
    }

    /// Whether a host that starts in this place has no listener for the last route: a deploy has not come to it yet. Where every host
    /// delivers everything it never does; where one host alone may deliver an event, the deploy ends once the database is well.
    fn lacks_route(&self, place: usize, is_healed: bool) -> bool {
        place > 0 && self.plan.seed.is_multiple_of(3) && (self.plan.mode == Mode::MultiNode || !is_healed)
    }

    fn builder(&self, life: usize) -> OutboxBuilder<MemoryStore> {
        let plan = &self.plan;
        let store = MemoryStore { world: self.world.clone(), life };
        let dispatcher = DispatcherConfig {
            workers: plan.workers,
            hot_queue: plan.queue,
            cold_queue: plan.queue,
            max_attempts: plan.max_attempts,
            max_deferrals: plan.max_deferrals,
            deadline: plan.deadline,
            lease: plan.lease,
            drain_timeout: plan.drain_timeout,
            unroutable: Unroutable::Park,
            settle_batch: plan.settle_batch,
            ..DispatcherConfig::default()
        };
        let poller = PollerConfig {
            interval: plan.poll_interval,
            batch_size: plan.poll_batch,
            drain_batch_size: plan.poll_batch * 4,
            skip_recent: Duration::ZERO,
        };
        let breaker =
            BreakerConfig { window: 2 * plan.breaker_threshold, threshold: plan.breaker_threshold, pause: plan.breaker_pause };
        let mut builder = Outbox::builder(store)
            .mode(plan.mode)
            .dispatcher(dispatcher)
            .poller(poller)
            .breaker(breaker)
            .order(plan.order)
            .retry(Exponential { base: Duration::from_millis(200), max: Duration::from_secs(5) })
            .purge(PurgeConfig { enabled: false, ..PurgeConfig::default() })
            .label(format!("life{life}"));
        let lacks_route = self.world().lives[life].lacks_route;
        for number in 0..ROUTES.len() {
            if number + 1 == ROUTES.len() && lacks_route {
                continue;
            }
            let actor = Actor { world: self.world.clone(), life, route: number };
            builder = builder.registration(actor.registration());
        }
        builder
    }

    /// From one moment to the next a host is gone, with all that it had not sent yet.
    fn kill(self: Arc<Self>, place: usize) {
        let Some((life, outbox)) = locked(&self.places[place]).take() else { return };
        locked(&self.writers).retain(|(of, task)| {
            if *of == life {
                task.abort();
            }
            *of != life
        });
        let mut world = self.world();
        let line = format!("{} is killed", world.name(life));
        world.note(line);
        world.lives[life].killed = true;
        world.life_ends(life);
        let owner = world.lives[life].owner.clone().unwrap_or_default();
        world.break_session(&owner, None);
        let after = world.chance.millis(500..30_000);
        drop(world);
        locked(&self.dead).push(outbox);
        self.start(place, after);
    }

    fn restart(self: Arc<Self>, place: usize) {
        let Some((life, outbox)) = locked(&self.places[place]).take() else { return };
        let stage = self.clone();
        self.keep(tokio::spawn(async move {
            stage.stop(life, outbox).await;
            let after = stage.world().chance.millis(0..5_000);
            stage.start(place, after);
        }));
    }

    /// Stops a host, and sees whether that ends in time.
    async fn stop(&self, life: usize, outbox: Outbox<MemoryStore>) {
        let (began, name) = (Instant::now(), self.world().name(life));
        {
            let mut world = self.world();
            world.note(format!("{name} stops"));
            world.lives[life].stops = true;
        }
        outbox.shutdown().await;
        let (took, within) = (began.elapsed(), self.plan.stop_within());
        let mut world = self.world();
        world.note(format!("{name} has stopped after {took:?}"));
        if took > within {
            world.violated(format!("{name} took {took:?} to stop, and may take {within:?}"));
        }
    }

    /// A host of an earlier version is there for so long: it claims whatever is due, and delivers some of it.
    async fn claim_as_of_old(&self, span: Duration) {
        let owner = OwnerId::known("old");
        let until = again::elapsed() + span;
        while again::elapsed() < until {
            {
                let mut world = self.world();
                world.tick();
                world.table.heartbeat(&Node::new(owner.clone(), "old", self.plan.mode.as_str(), "0.0.9"), span);
                let lease = self.plan.lease;
                let request = ClaimRequest {
                    owner: owner.clone(),
                    lease,
                    limit: 3,
                    max_bytes: 1 << 20,
                    skip_recent: Duration::ZERO,
                    order: None,
                };
                let taken = world.past_locked(|world| world.table.claim(&request));
                let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
                world.lost(|_, row| seqs.contains(&row.seq));
                world.taken_by_old.extend(&seqs);
                world.note(format!("the host of an earlier version claims {seqs:?}"));
                for taken in taken {
                    if world.chance.per_mille(500) {
                        world.table.settle(&[Settled::new(taken.fence, Settlement::Done)]);
                    }
                }
            }
            let rest = self.world().chance.millis(500..10_000);
            sleep(rest).await;
        }
        let mut world = self.world();
        world.tick();
        world.table.leave("old");
        world.note("the host of an earlier version is gone");
    }

    /// Writes events, by a host or by another program; late, or not at all.
    fn write(self: Arc<Self>, count: usize) {
        let mut world = self.world();
        let chance = Chance::of(world.chance.next(), 9);
        drop(world);
        let mut writing = Writing { stage: self.clone(), chance };
        let place = writing.chance.index(self.plan.hosts);
        let host = locked(&self.places[place]).clone().filter(|_| !writing.chance.per_mille(300));
        let life = host.as_ref().map_or(usize::MAX, |(life, _)| *life);
        let task = tokio::spawn(async move { writing.write(host.map(|(_, outbox)| outbox), count).await });
        locked(&self.writers).push((life, task));
    }

    /// The database is well: everybody is started again, and every event ends.
    async fn recover(self: &Arc<Self>) {
        self.join_tasks().await;
        self.end_deploy();
        self.join_tasks().await;
        let writers = std::mem::take(&mut *locked(&self.writers));
        for (_, task) in writers {
            self.join(task).await;
        }
        self.until_all_have_ended(PATIENCE).await;
        if self.world().violation.is_some() {
            return;
        }
        // Everything works as if nothing had been, the listener whose breaker was open too.
        {
            let mut world = self.world();
            let now = world.tick();
            let nobodys = outbox::store::Ownership { owner: OwnerId::known("nobody"), lease: Duration::ZERO };
            let mut rows = Vec::new();
            for (number, _) in ROUTES.iter().enumerate() {
                let envelope = envelope(&format!("probe-{number}"), number, Some("0"), now).bytes("text/plain", "probe");
                let envelope = envelope.expect("a good envelope");
                world.insert(&mut rows, &[outbox::store::NewRow { envelope: &envelope, claimed: false }], &nobodys);
            }
            world.commit(rows);
        }
        self.until_all_have_ended(PROBE_PATIENCE).await;
    }

    /// Starts those again whose listeners are not complete.
    fn end_deploy(self: &Arc<Self>) {
        for place in 0..self.plan.hosts {
            let life = locked(&self.places[place]).as_ref().map(|(life, _)| *life);
            if life.is_some_and(|life| self.world().lives[life].lacks_route && !self.lacks_route(place, true)) {
                self.clone().restart(place);
            }
        }
    }

    async fn join_tasks(&self) {
        loop {
            let task = locked(&self.tasks).pop();
            let Some(task) = task else { return };
            self.join(task).await;
        }
    }

    async fn join(&self, task: JoinHandle<()>) {
        if let Err(error) = task.await
            && error.is_panic()
        {
            self.world().violated(format!("a task of the test panicked: {error}"));
        }
    }

    async fn until_all_have_ended(&self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            sleep(Duration::from_secs(1)).await;
            let mut world = self.world();
            if world.violation.is_some() {
                return;
            }
            let open: Vec<&Record> = world.table.rows.values().filter(|row| is_unfinished(row)).collect();
            if open.is_empty() {
                return;
            }
            if Instant::now() >= until {
                let open: Vec<String> = open.iter().map(|row| format!("  {}", left(row))).collect();
                world.violated(format!("{} events have not ended:\n{}", open.len(), open.join("\n")));
                return;
            }
            // An operator lets what waits behind a dead event go on.
            let blocking = world.table.rows.values().filter(|row| row.blocks).map(|row| row.event_id);
            let audit = Audit { actor: "operator".to_owned(), reason: None };
            if let Some(id) = blocking.min() {
                world.tick();
                world.table.skip(id, &audit);
                world.note(format!("somebody skips {id}"));
            }
        }
    }

    /// Stops whoever is there. Now that the database is well, nothing of them is left in it.
    async fn stop_all(&self) {
        for place in &self.places {
            let Some((life, outbox)) = locked(place).take() else { continue };
            self.stop(life, outbox).await;
            let mut world = self.world();
            let owner = world.lives[life].owner.clone().unwrap_or_default();
            if world.table.nodes.contains_key(&owner) || !world.table.held_partitions(&owner).is_empty() {
                let fault = format!("{} has stopped and stands in the tables still", world.name(life));
                world.violated(fault);
            }
        }
    }
}

/// One transaction.
struct Writing {
    stage: Arc<Stage>,
    chance: Chance,
}

impl Writing {
    async fn write(&mut self, host: Option<Outbox<MemoryStore>>, count: usize) {
        let key = (!self.chance.per_mille(200)).then(|| self.chance.index(self.stage.plan.aggregates));
        let aggregate = key.map(|key| self.stage.aggregates[key].clone());
        let _alone = match &aggregate {
            Some(aggregate) => Some(aggregate.lock().await),
            None => None,
        };
        let key = key.map(|key| key.to_string());
        let envelopes: Vec<Envelope> = (0..count).map(|_| self.envelope(key.as_deref())).collect();
        let longest = self.stage.plan.lease.as_millis() as u64 * 3 / 2;
        let late = if self.chance.per_mille(200) { self.chance.millis(0..longest) } else { self.chance.millis(0..50) };
        let commits = !self.chance.per_mille(150);
        match host {
            // What an error means for its events only the table knows.
            Some(outbox) if self.chance.per_mille(300) => drop(outbox.writer().emit(envelopes).await),
            Some(outbox) => {
                let Ok(mut transaction) = outbox.begin().await else { return };
                let written = transaction.write_all(envelopes).await;
                sleep(late).await;
                if written.is_err() || !commits {
                    if self.chance.per_mille(500) {
                        drop(transaction.rollback().await);
                    }
                    return;
                }
                drop(transaction.commit().await);
            }
            None => {
                let nobodys = outbox::store::Ownership { owner: OwnerId::known("nobody"), lease: Duration::ZERO };
                let mut rows = Vec::new();
                for envelope in &envelopes {
                    let new = outbox::store::NewRow { envelope, claimed: false };
                    self.stage.world().insert(&mut rows, &[new], &nobodys);
                }
                sleep(late).await;
                if commits {
                    self.stage.world().commit(rows);
                }
            }
        }
    }

    fn envelope(&mut self, key: Option<&str>) -> Envelope {
        let number = {
            let mut next = locked(&self.stage.next_id);
            *next += 1;
            *next
        };
        let now = self.stage.world().table.now;
        let mut builder = envelope(&format!("e{number:03}"), self.chance.index(ROUTES.len()), key, now);
        if self.chance.per_mille(100) {
            builder = builder.available_at(now.plus(self.chance.millis(0..30_000)));
        }
        if self.chance.per_mille(50) {
            builder = builder.expires_at(now.plus(self.chance.millis(31_000..120_000)));
        }
        builder.bytes("text/plain", format!("payload of {number}")).expect("a good envelope")
    }
}

fn envelope(id: &str, route: usize, key: Option<&str>, now: outbox::time::Timestamp) -> outbox::event::EnvelopeBuilder {
    let (aggregate_type, event_type) = ROUTES[route];
    let id: EventId = id.parse().expect("a good id");
    let builder = Envelope::new(event_type).now(now).id(id).aggregate_type(aggregate_type);
    match key {
        Some(key) => builder.aggregate_id(key),
        None => builder,
    }
}

/// What keeps an event from its end.
fn left(row: &Record) -> String {
    format!(
        "{} {} of {}/{}: {:?}, due at {:?}, parked {:?}, behind {:?}, claimed by {:?} until {:?}",
        row.seq,
        row.event_id,
        row.aggregate_type,
        row.event_type,
        row.status,
        row.due_at,
        row.parked,
        row.behind,
        row.locked_by,
        row.lease_end
    )
}

impl Chance {
    /// A time within this span.
    fn at(&mut self, span: Duration) -> Duration {
        self.millis(0..u64::try_from(span.as_millis()).expect("some minutes"))
    }
}

impl World {
    /// What must hold in the end.
    fn look_back(&mut self) {
        let mut faults = Vec::new();
        for row in self.table.rows.values() {
            let counted = self.calls.counted.get(&row.seq).copied().unwrap_or(0);
            if row.attempts != counted {
                faults.push(format!("row {} counts {} attempts, and {counted} failures were stored", row.seq, row.attempts));
            }
            if !matches!(row.status, Status::Done | Status::Dead) && self.violation.is_none() {
                faults.push(format!("row {} is {:?} in the end", row.seq, row.status));
            }
        }
        // Where nothing fails, each call has an outcome.
        if self.plan.is_quiet() {
            // Some of those that the deploy came to were cut off by it.
            let goes_on = |call: &&crate::calls::Call| self.plan.mode == Mode::MultiNode || !self.lives[call.life].lacks_route;
            for call in self.calls.all.iter().filter(goes_on).filter(|call| !call.stored) {
                faults.push(format!("nothing failed, and the call for {:?} has no outcome: {:?}", call.fence, call.end));
            }
            let cut_off = |call: &&crate::calls::Call| matches!(call.end, Some(End::CutOff { deadline_over: false }));
            faults.extend(
                self.calls
                    .all
                    .iter()
                    .filter(goes_on)
                    .filter(cut_off)
                    .map(|call| format!("nothing failed, and {:?} was cut off", call.fence)),
            );
        }
        for fault in faults {
            self.violated(fault);
        }
    }
}
