//! Listeners that behave as the seed says.

use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use outbox::event::Effects;
use outbox::listener::{Outcome, Reply, Visit};
use outbox::{Envelope, Event, Failure, Listener, Registration, Route};
use tokio::time::{Instant, sleep};

use crate::again;
use crate::calls::{Answer, End};
use crate::chance::Chance;
use crate::plan::Plan;
use crate::world::{Shared, lock};

/// The routes of all events: aggregate type and event type.
pub(crate) const ROUTES: [(&str, &str); 3] = [("Order", "Placed"), ("Order", "Paid"), ("Cart", "Left")];
/// What ids of events begin with that a listener has emitted.
const FOLLOWS: &str = "f-";
/// What a listener panics with on purpose.
pub(crate) const ON_PURPOSE: &str = "a listener panics on purpose";

/// The listener of one route in one life of a host.
pub(crate) struct Actor {
    pub(crate) world: Shared,
    pub(crate) life: usize,
    pub(crate) route: usize,
    pub(crate) is_relay: bool,
}

/// What a listener does with one call.
#[derive(Clone, Copy, Debug)]
enum Act {
    Done { emits: bool },
    Dead,
    Fail { after: Option<Duration> },
    Defer { after: Duration },
    Panic { at_once: bool },
    Sleep,
}

impl Actor {
    pub(crate) fn registration(self) -> Registration {
        Registration::new(route(self.route), self)
    }

    /// Chooses the act of this host for the n-th call of an event.
    fn act(&self, plan: &Plan, host: usize, event: &Event, nth: u64) -> (Duration, Act) {
        let whose = event.id().as_str().bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        let mut of_event = Chance::of(plan.seed ^ whose, 5);
        let manners = &plan.listeners;
        let troubles = if of_event.per_mille(manners.troubled) { of_event.number(1..5) } else { 0 };
        let (dies, emits) = (of_event.per_mille(manners.dying), of_event.per_mille(150));

        let mut of_call = Chance::of(plan.seed ^ whose, 6 + nth);
        let takes = of_call.millis(0..u64::try_from(manners.longest.as_millis()).expect("a few seconds") + 1);
        if self.route == 0 && manners.breaks.is_some_and(|breaks| breaks.concern(host, again::elapsed())) {
            return (takes, Act::Panic { at_once: false });
        }
        let act = match of_call.index(7) {
            _ if nth >= troubles => match (dies, emits && !event.id().as_str().starts_with(FOLLOWS)) {
                (true, _) => Act::Dead,
                (false, emits) => Act::Done { emits },
            },
            0 | 1 => Act::Fail { after: None },
            2 => Act::Fail { after: Some(of_call.millis(0..8_000)) },
            3 => Act::Defer { after: of_call.millis(0..8_000) },
            4 => Act::Panic { at_once: false },
            5 => Act::Panic { at_once: true },
            _ => Act::Sleep,
        };
        (takes, act)
    }
}

pub(crate) fn route(number: usize) -> Route {
    let (aggregate_type, event_type) = ROUTES[number];
    Route::new(aggregate_type, event_type).expect("good names")
}

pub(crate) fn last_route() -> Route {
    route(ROUTES.len() - 1)
}

/// The events of the last route, as a relay names them that answers all events of an aggregate type.
pub(crate) fn last_route_as_pattern() -> Route {
    Route::new(last_route().aggregate_type.as_str(), "*").expect("a good pattern")
}

impl Listener for Actor {
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Reply> {
        let mut world = lock(&self.world);
        if world.lives[self.life].killed {
            return Box::pin(pending());
        }
        let number = world.call_begins(self.life, visit.event);
        let nth = world.calls.nth(number);
        let (takes, act) = self.act(&world.plan, world.lives[self.life].place, visit.event, nth);
        if self.route == 0 {
            world.calls_while_broken(self.life);
        }
        if self.is_relay {
            world.relay_is_called(self.life);
        }
        let deadline = world.plan.deadline;
        drop(world);
        let mut call = Running { world: self.world.clone(), life: self.life, number, over_at: Instant::now() + deadline };
        if let Act::Panic { at_once: true } = act {
            call.ends(Answer::Panicked);
            std::panic::panic_any(ON_PURPOSE);
        }
        Box::pin(async move {
            sleep(takes).await;
            if let Act::Sleep = act {
                sleep(2 * deadline).await;
            }
            if lock(&call.world).lives[call.life].killed {
                pending::<()>().await;
            }
            match act {
                Act::Done { emits } => {
                    call.ends(Answer::Done);
                    let effects =
                        emits.then(|| Box::new(Effects { emitted: vec![follow_up(visit.event)], ..Effects::default() }));
                    Reply { effects, ..Outcome::Done.into() }
                }
                Act::Dead => {
                    call.ends(Answer::Dead);
                    Outcome::from(Ok(outbox::dead("nobody wants it"))).into()
                }
                Act::Fail { after } => {
                    call.ends(Answer::Failed);
                    let failure = match after {
                        Some(after) => Failure::retryable_after(after, "no luck"),
                        None => Failure::retryable("no luck"),
                    };
                    Outcome::Failed(failure).into()
                }
                Act::Defer { after } => {
                    call.ends(Answer::Deferred);
                    Outcome::RetryAfter(after).into()
                }
                // One that sleeps longer than its deadline is cut off before it comes to this.
                Act::Panic { .. } | Act::Sleep => {
                    call.ends(Answer::Panicked);
                    std::panic::panic_any(ON_PURPOSE)
                }
            }
        })
    }
}

/// An event that follows from another: one whose id tells from which.
fn follow_up(event: &Event) -> Envelope {
    let id = format!("{FOLLOWS}{}", event.id()).parse().expect("a good id");
    let builder = event.envelope().to_builder().id(id).occurred_at(event.occurred_at());
    let builder = builder.available_at(event.occurred_at());
    builder.bytes("text/plain", event.payload_bytes().clone()).expect("a good envelope")
}

/// A call that goes on until it says how it ended, or is dropped.
struct Running {
    world: Shared,
    life: usize,
    number: usize,
    over_at: Instant,
}

impl Running {
    fn ends(&mut self, answer: Answer) {
        lock(&self.world).call_ends(self.number, End::Answered(answer));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let deadline_over = Instant::now() >= self.over_at;
        lock(&self.world).call_ends(self.number, End::CutOff { deadline_over });
    }
}
