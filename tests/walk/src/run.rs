//! One run: hosts that start, stop and die, writers, and somebody who locks rows; then a database that is well again, and what
//! must have come of it all.

mod hosts;
mod idle;
mod looking_back;
mod purging;
mod recovery;
mod writing;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbox::Outbox;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::again;
use crate::chance::Chance;
use crate::plan::Plan;
use crate::store::MemoryStore;
use crate::table::is_unfinished;
use crate::world::{Shared, World, lock};

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
    again::began(plan.time_of_day);
    let world = World::new(plan.clone());
    let stage = Arc::new(Stage::new(world.clone(), &plan));
    stage.chaos().await;
    stage.recover().await;
    stage.purge_ends().await;
    stage.idle().await;
    stage.stop_all().await;
    let mut world = lock(&world);
    world.look_back();
    Report {
        violation: world.violation.clone(),
        history: world.history().to_vec(),
        sum: world.sum,
        events: world.table.rows.len() + world.purged.len(),
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
        let Plan { chaos, faults, events, hosts, .. } = &self.plan;
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
        world.tick();
        world.check_progress();
        world.check_purge();
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
        }
    }

    fn keep(&self, task: JoinHandle<()>) {
        locked(&self.tasks).push(task);
    }
}

impl Chance {
    /// A time within this span.
    fn at(&mut self, span: Duration) -> Duration {
        self.millis(0..u64::try_from(span.as_millis()).expect("some minutes"))
    }
}
