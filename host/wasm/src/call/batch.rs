//! `on-events`: events of one listener that are with it at the same time go into one call.
//!
//! Nobody waits for others to come: a call takes along whoever is there. When a call breaks off, its events are delivered again
//! one by one, so that the one that broke it is found and only that one pays. The listener's breaker judges these single calls
//! alone; after a few calls in a row that broke off, no more are made for a while.

use std::collections::{HashSet, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outbox_event::{Cost, Event, EventId, Outcome};
use outbox_listener::{Reminder, Reply, Visit};
use tokio::sync::oneshot;
use wasmtime::Store;
use wasmtime::component::ComponentExportIndex;

use super::computes_long::ComputesLong;
use super::guest_event::{GuestEvent, GuestLists};
use super::{holds_without_memory, outcome};
use crate::bindings::exports::outbox::listener::handler as wit;
use crate::capability::{HostState, Identity};
use crate::explain::CallError;
use crate::limits::INIT_FUEL;
use crate::load::on_events::Answers;
use crate::load::plugin::{Plugin, refuel, used};
use crate::turns::in_turns;

/// The most events of one call.
const MAX_EVENTS: usize = 100;
/// The most bytes that the events of one call have together, headers included; one event may have more.
const MAX_BYTES: usize = 1 << 20;
/// Calls of one route at once.
const MAX_CALLS: usize = 2;
/// The most events that are remembered as ones to be delivered alone.
const MAX_SUSPECTS: usize = 10_000;

/// After this many calls in a row that broke off, events are delivered one by one for a while: each would be called twice
/// otherwise.
const MAX_BROKEN: u32 = 3;
/// For how long.
const ALONE: Duration = Duration::from_secs(30);

/// The rest of an event whose call with others has used up its time.
const PUT_OFF: Duration = Duration::from_secs(1);
const BROKE_OFF: &str = "a call for it and others broke off late; its listener gets it alone next";

/// The calls of `on-events` of one listener.
pub(crate) struct BatchCalls {
    shared: Arc<Shared>,
}

struct Shared {
    plugin: Arc<Plugin>,
    function: ComponentExportIndex,
    deadline_ms: String,
    computes_long: ComputesLong,
    state: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    waiting: VecDeque<Waiting>,
    /// Calls that are under way or about to begin.
    under_way: usize,
    /// Events of a call that broke off.
    suspects: HashSet<EventId>,
    /// How many calls in a row broke off.
    broken: u32,
    /// For the log: a guest can break every call off.
    reminder: Reminder,
    /// Until when events are delivered one by one.
    alone_until: Option<Instant>,
}

/// One event that waits for its answer.
struct Waiting {
    asked: Asked,
    answer: oneshot::Sender<Result<Reply, Alone>>,
}

/// An event has to be delivered alone.
#[derive(Default)]
pub(crate) struct Alone {
    /// Its share of the call that broke off; `None` when there was none.
    pub(crate) broken_call_cost: Option<Box<Cost>>,
}

/// Why a call broke off.
struct Break {
    why: String,
    /// Whether the listener is to blame, rather than the host for having no room.
    counts: bool,
}

/// One event, and what the guest is told with it.
struct Asked {
    event: Arc<Event>,
    max_attempts: u32,
    deferrals: u32,
    began: Instant,
}

impl BatchCalls {
    pub(crate) fn new(plugin: Arc<Plugin>, function: ComponentExportIndex, deadline_ms: String) -> Self {
        Self {
            shared: Arc::new(Shared {
                plugin,
                function,
                deadline_ms,
                computes_long: ComputesLong::default(),
                state: Mutex::default(),
            }),
        }
    }

    /// The answer to an event, from a call with others.
    pub(crate) async fn answer(&self, visit: &Visit<'_>) -> Result<Reply, Alone> {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut calls = self.shared.lock();
            if calls.suspects.remove(&visit.event.id()) || calls.alone_until.is_some_and(|until| visit.began < until) {
                return Err(Alone::default());
            }
            let Visit { deferrals, max_attempts, began, .. } = *visit;
            let asked = Asked { event: visit.event.clone(), max_attempts, deferrals, began };
            calls.waiting.push_back(Waiting { asked, answer });
            let begins = calls.under_way < MAX_CALLS;
            calls.under_way += usize::from(begins);
            begins
        };
        if begins {
            // A task of its own: the event that began it may be cut off, and the others must not be.
            tokio::spawn(self.shared.clone().call_all());
        }
        answered.await.unwrap_or_else(|_| Err(Alone::default()))
    }
}

impl Shared {
    /// Makes calls as long as events wait.
    async fn call_all(self: Arc<Self>) {
        let under_way = UnderWay(&self);
        loop {
            // The workers that were woken with this one bring their events first.
            tokio::task::yield_now().await;
            let group = {
                let mut calls = self.lock();
                let group = calls.group();
                if group.is_empty() {
                    // Under the same lock as the look, or an event that comes between the two waits for nobody.
                    calls.under_way -= 1;
                    std::mem::forget(under_way);
                    return;
                }
                group
            };
            self.call(group).await;
        }
    }

    /// One call for these events, for as long as anybody waits for an answer.
    async fn call(&self, mut group: Vec<Waiting>) {
        let deadline = self.plugin.manifest.limits.deadline;
        let started = Instant::now();
        // Whoever was cut off meanwhile does not come along; nor does one that has waited so long, whose claim may have ended with
        // nobody awake to notice: it goes on alone, after a look at its claim.
        group.retain(|waiting| !waiting.answer.is_closed() && started < waiting.asked.began + deadline);
        if group.is_empty() {
            return;
        }
        let (asked, mut senders): (Vec<Asked>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.asked, waiting.answer)).unzip();
        let mut store = self.plugin.linked.store(INIT_FUEL);
        let plugin = &self.plugin.linked.identity.name;
        let mut init_fuel = 0;
        let answered = {
            let call = pin!(self.ask(&mut store, &mut init_fuel, &asked, started + deadline));
            let call = in_turns(plugin, self.computes_long.get(), call);
            tokio::select! {
                biased;
                answered = tokio::time::timeout(deadline, call) => answered,
                () = all_closed(&mut senders) => return,
            }
        };
        let guest = used(&store);
        self.computes_long.learn(init_fuel.saturating_add(guest.fuel));
        let cost = Cost { guest: Some(guest), ..Cost::of_time(started.elapsed()) };
        // Whether the host refused the guest memory that its limit allows.
        let starved = store.data().limiter.starved;
        // Before the events go on alone, for which it makes room.
        drop(store);
        let events = u32::try_from(asked.len()).unwrap_or(u32::MAX);
        let identity = &self.plugin.linked.identity;
        // If the call has used up their time, its events are delivered alone when they come again; else at once.
        let put_off = started.elapsed() >= deadline / 2;
        let broken = match answered {
            Ok(Ok(answers)) if answers.len() == asked.len() => {
                self.lock().broken = 0;
                for (number, ((asked, sender), answer)) in (0..).zip(asked.iter().zip(senders).zip(answers)) {
                    let (outcome, share) = (outcome(answer, identity), cost.share(number, events));
                    let is_refused = starved && !holds_without_memory(&outcome);
                    // The receiver of an event that was cut off meanwhile is gone.
                    let _ = sender.send(if is_refused {
                        self.deliver_alone(asked, share, put_off)
                    } else {
                        Ok(Reply::with_cost(outcome, share))
                    });
                }
                return;
            }
            Ok(Ok(_)) if starved => Break::of_host("its plugin, or all guests together, have no more memory"),
            Ok(Ok(answers)) => Break::of_listener(format!("it gave {} answers for {} events", answers.len(), asked.len())),
            Ok(Err(broken)) => broken,
            Err(_) => Break::of_listener(format!("it took longer than {}", humantime::format_duration(deadline))),
        };
        self.broke_off(&broken, events);
        for (number, (asked, sender)) in (0..).zip(asked.iter().zip(senders)) {
            let _ = sender.send(self.deliver_alone(asked, cost.share(number, events), put_off));
        }
    }

    /// Lets an event be delivered alone after a call that did not answer it: when it comes again if it is `put_off`, else at once.
    fn deliver_alone(&self, asked: &Asked, share: Cost, put_off: bool) -> Result<Reply, Alone> {
        if put_off && self.suspect(asked) {
            Ok(Reply::with_cost(Outcome::Busy { after: PUT_OFF, reason: BROKE_OFF.into() }, share))
        } else {
            Err(Alone { broken_call_cost: Some(Box::new(share)) })
        }
    }

    /// Tells of a call that broke off, and counts it when the listener is to blame. Its breaker does not count it: each of the
    /// events is delivered alone now, and what comes of that is counted.
    fn broke_off(&self, broken: &Break, events: u32) {
        let Identity { name: plugin, digest, .. } = &*self.plugin.linked.identity;
        let why = &broken.why;
        if !broken.counts {
            tracing::debug!(
                target: "outbox::wasm::call::batch",
                plugin,
                digest,
                events,
                "a call of on-events does not count, and its events are delivered one by one: {why}"
            );
            return;
        }
        let (says_so, in_a_row) = {
            let mut calls = self.lock();
            calls.broken = calls.broken.saturating_add(1);
            if calls.broken >= MAX_BROKEN {
                calls.alone_until = Instant::now().checked_add(ALONE);
            }
            (calls.reminder.is_due(tokio::time::Instant::now()), calls.broken)
        };
        if says_so {
            tracing::warn!(
                target: "outbox::wasm::call::batch",
                plugin,
                digest,
                events,
                "a call of on-events broke off, and its events are delivered again one by one: {why}"
            );
        }
        if in_a_row >= MAX_BROKEN {
            tracing::warn!(
                target: "outbox::wasm::call::batch",
                plugin,
                digest,
                "on-events broke off {in_a_row} times in a row: for {} s events are delivered one by one",
                ALONE.as_secs()
            );
        }
    }

    /// Remembers an event as one that is delivered alone the next time; false when there is no room for that.
    fn suspect(&self, asked: &Asked) -> bool {
        let mut calls = self.lock();
        let has_room = calls.suspects.len() < MAX_SUSPECTS;
        if has_room {
            calls.suspects.insert(asked.event.id());
        }
        has_room
    }

    /// One call in an instance of its own, with the fuel of all its events and the deadline of one. Sets `init_fuel` to the fuel that the
    /// instantiation used, before the store gets the fuel of the call.
    async fn ask(
        &self,
        store: &mut Store<HostState>,
        init_fuel: &mut u64,
        group: &[Asked],
        ends: Instant,
    ) -> Result<Answers, Break> {
        let linked = &self.plugin.linked;
        let events: Vec<GuestEvent<'_>> =
            group.iter().map(|asked| GuestEvent::new(&asked.event, asked.max_attempts, asked.deferrals)).collect();
        let lists: Vec<GuestLists<'_>> = events.iter().map(|event| event.lists(&self.deadline_ms)).collect();
        let params: Vec<wit::Event<'_>> = events.iter().zip(&lists).map(|(event, lists)| event.param(lists)).collect();
        let fuel = linked.limits.fuel.saturating_mul(group.len() as u64);
        let answers: wasmtime::Result<Answers> = async {
            let instance = linked.pre.instance_pre().instantiate_async(&mut *store).await?;
            let function = instance.get_typed_func::<(&[wit::Event<'_>],), (Answers,)>(&mut *store, &self.function)?;
            *init_fuel = used(store).fuel;
            store.data_mut().begin_many(group.iter().map(|asked| asked.event.clone()).collect(), ends);
            refuel(store, fuel)?;
            store.set_epoch_deadline(1);
            Ok(function.call_async(&mut *store, (&params,)).await?.0)
        }
        .await;
        let why = |error: wasmtime::Error, store: &mut Store<HostState>| match self.plugin.why(&error, store) {
            CallError::Broken(failure) => Break::of_listener(failure.to_string()),
            CallError::NoSlot | CallError::NoMemory => Break::of_host("the host has no room for another instance"),
        };
        answers.map_err(|error| why(error, store)).inspect(|_| {
            store.data_mut().end();
        })
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Break {
    fn of_listener(why: String) -> Self {
        Self { why, counts: true }
    }

    fn of_host(why: &str) -> Self {
        Self { why: why.to_owned(), counts: false }
    }
}

impl Calls {
    /// The events of the next call: those of one tenant, in the order in which they came.
    fn group(&mut self) -> Vec<Waiting> {
        let mut group: Vec<Waiting> = Vec::new();
        let mut bytes = 0;
        let mut index = 0;
        while index < self.waiting.len() && group.len() < MAX_EVENTS {
            let next = &self.waiting[index].asked.event;
            let size = next.size_bytes();
            let fits = group
                .first()
                .is_none_or(|first| first.asked.event.tenant_id() == next.tenant_id() && bytes + size <= MAX_BYTES);
            if !fits {
                index += 1;
                continue;
            }
            bytes += size;
            group.extend(self.waiting.remove(index));
        }
        group
    }
}

/// Returns once nobody waits for an answer any more.
async fn all_closed(senders: &mut [oneshot::Sender<Result<Reply, Alone>>]) {
    for sender in senders {
        sender.closed().await;
    }
}

/// Counts a task that makes calls; also when the runtime drops it, or a call panics.
struct UnderWay<'s>(&'s Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut calls = self.0.lock();
        calls.under_way -= 1;
        if calls.under_way == 0 {
            // Nobody is left who would answer: they are delivered alone.
            calls.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    use super::*;
    use crate::directory::ManifestFile;
    use crate::directory::file::Bytes;
    use crate::engine::{Engine, PagemapScan};
    use crate::load::Loader;
    use crate::tests::{Guest, event, visit};

    /// Computes for long when it is instantiated.
    const SLOW_TO_MAKE: &str = "(func $begin (local $i i32)
            (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000)))))
        (start $begin)";

    /// A guest that answers `on-events` with one `done`, unless `on_events` overwrites the answer at 784.
    fn batching(outside: &str, on_events: &str) -> Vec<u8> {
        let guest = Guest::new("(call $done)").outside(&format!(
            r#"{outside}
            (func (export "outbox:listener/batch-handler@0.1.0#on-events") (param i32 i32) (result i32)
                {on_events}
                (i32.store (i32.const 768) (i32.const 784)) (i32.store (i32.const 772) (i32.const 1)) (i32.const 768))"#
        ));
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("wit/0.1.0")).unwrap();
        let world = resolve.select_world(&[package], Some("batch-listener")).unwrap();
        let mut core = guest.core();
        embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().validate(true).module(&core).unwrap().encode().unwrap()
    }

    /// The calls of a component, in this sandbox.
    async fn calls_in(engine: Arc<Engine>, component: Vec<u8>) -> BatchCalls {
        let loader = Loader::bare(engine);
        let bytes = Arc::new(Bytes::of(Path::new("guest.wasm"), component));
        let manifest = toml::from_str("isolation = \"batch\"\nlimits.memory = \"64MiB\"").unwrap();
        let plugin = loader.load("guest", bytes, ManifestFile::from_config(manifest)).await.unwrap().plugin;
        let function = plugin.on_events.expect("it exports on-events");
        BatchCalls::new(plugin, function, "5000".to_owned())
    }

    #[tokio::test]
    async fn a_long_instantiation_counts_for_whether_calls_compute_for_long() {
        let calls = calls_in(Engine::new(2, PagemapScan::Off).unwrap(), batching(SLOW_TO_MAKE, "")).await;
        let event = event(None);

        let Ok(reply) = calls.answer(&visit(&event, 0, 1)).await else { panic!("the call broke off") };

        assert_eq!(reply.outcome, Outcome::Done);
        assert!(calls.shared.computes_long.get());
    }

    #[tokio::test]
    async fn only_successes_count_in_a_call_that_was_refused_memory() {
        // Takes pages until it is refused one.
        let hoard = "(block (loop (br_if 1 (i32.eq (memory.grow (i32.const 1)) (i32.const -1))) (br 0)))";
        let fail = format!("{hoard} (i32.store (i32.const 784) (i32.const 1))");
        let event = event(None);
        let engine = || {
            let engine = Engine::new(2, PagemapScan::Off).unwrap();
            engine.memory.set_max(8 << 20);
            engine
        };

        let done = calls_in(engine(), batching("", hoard)).await.answer(&visit(&event, 0, 1)).await;
        let failed = calls_in(engine(), batching("", &fail)).await.answer(&visit(&event, 0, 1)).await;
        // Refused memory when it is instantiated.
        let greedy = "(func $begin (drop (memory.grow (i32.const 200)))) (start $begin)";
        let fail = "(i32.store (i32.const 784) (i32.const 1))";
        let crippled = calls_in(engine(), batching(greedy, fail)).await.answer(&visit(&event, 0, 1)).await;

        assert!(matches!(done, Ok(Reply { outcome: Outcome::Done, .. })), "its requests are not repeated");
        for failed in [failed, crippled] {
            assert!(
                matches!(failed, Err(_) | Ok(Reply { outcome: Outcome::Busy { .. }, .. })),
                "it may have failed for lack of memory"
            );
        }
    }
}
