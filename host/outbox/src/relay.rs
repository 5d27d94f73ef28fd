//! Sends the events of a route to a sink, without any plugin.
//!
//! A relay is a listener like any other: an event is done when its sink has confirmed it. The sink groups the events that are with
//! its relays at the same time, so a relay is as fast as there are workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Route};
use crate::listener::{Cause, Concurrency, Failure, FailureKind, Listener, Outcome, Owner, Registration, Reply, Visit};
use crate::sink::{Message, Sink, SinkError, Sinks, Template};
use crate::units::span;

/// How much longer than its sink a call may take, so that the error is the sink's.
const LONGER: Duration = Duration::from_secs(1);

/// The longest that a call of a relay may take: a message may wait to be sent, and then for its confirmation.
fn longest_call(timeout: Duration) -> Duration {
    timeout.saturating_mul(2).saturating_add(LONGER)
}

/// Where the events of a route go.
///
/// ```
/// # use outbox::sink::Sinks;
/// # use outbox::{OutboxBuilder, SqliteStore};
/// use outbox::RelayConfig;
///
/// # fn builder(builder: OutboxBuilder<SqliteStore>, sinks: Sinks) -> Result<OutboxBuilder<SqliteStore>, outbox::sink::TemplateError> {
/// let invoices = RelayConfig { subject: Some("billing.{event_type}".parse()?), ..RelayConfig::to("broker") };
/// Ok(builder
///     .sinks(sinks)
///     .relay(("Invoice", "*"), invoices) // every event type of this aggregate type
///     .relay(("Order", "OrderPlaced"), RelayConfig::to("broker")))
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// The name of the sink. Required.
    pub sink: String,
    /// The subject, stream, topic, routing key or path; `None` for the sink's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Template>,
    /// What keeps messages in order where the sink has partitions; `None` for the aggregate's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Template>,
}

impl RelayConfig {
    /// To this sink, with the sink's own subject and the aggregate's id as key.
    #[must_use]
    pub fn to(sink: impl Into<String>) -> Self {
        Self { sink: sink.into(), subject: None, key: None }
    }
}

/// The registrations of these relays in a host with so many workers, or everything that is wrong with them.
pub(crate) fn registrations(
    relays: &[(Route, RelayConfig)],
    sinks: &Sinks,
    lease: Duration,
    workers: usize,
) -> Result<Vec<(Owner, Registration)>, Vec<String>> {
    let mut faults = Vec::new();
    let mut registrations: Vec<(Owner, Registration)> = Vec::with_capacity(relays.len());
    for (number, (route, config)) in relays.iter().enumerate() {
        let key = format!("routes.{:?}", route.to_string());
        if relays[..number].iter().any(|(other, _)| other == route) {
            faults.push(format!("{key} is given twice; one sink each"));
        }
        let Some(sink) = sinks.get(&config.sink) else {
            faults.push(format!("{key}.sink is `{}`; {}", config.sink, known(sinks)));
            continue;
        };
        let timeout = sinks.timeout(&config.sink);
        let deadline = longest_call(timeout);
        if deadline >= lease {
            faults.push(format!(
                "sinks.{}.timeout is {timeout:?}; twice this time plus a second must be less than dispatcher.lease \
                 ({lease:?}), or a call could last longer than its claim",
                config.sink
            ));
        }
        let relay = Relay { sink, config: config.clone(), max_age: sinks.max_age(&config.sink), since: Instant::now() };
        // Half of the workers stay free for others, however slow one sink is.
        let calls = Some(Concurrency::OfOwner((workers / 2).max(1)));
        let registration = Registration { concurrency: calls, ..Registration::new(route.clone(), relay).deadline(deadline) };
        registrations.push((Owner::Sink(Arc::from(config.sink.as_str())), registration));
    }
    if faults.is_empty() { Ok(registrations) } else { Err(faults) }
}

fn known(sinks: &Sinks) -> String {
    match sinks.names().collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => "there are no sinks; add a section [sinks.NAME]".to_owned(),
        names => format!("the sinks are: {names}"),
    }
}

struct Relay {
    sink: Arc<dyn Sink>,
    config: RelayConfig,
    /// How long an event may wait while its receiver is unavailable.
    max_age: Option<Duration>,
    /// When this host began to ask.
    since: Instant,
}

impl Relay {
    fn message(&self, event: &Arc<Event>) -> Message {
        let mut message = Message::of_event(event);
        // Values of the event are cleaned for every kind of sink: a writer of events must not choose the shape of a subject.
        let subject = self.config.subject.as_ref().map(|subject| subject.render(&message, one_word));
        let key = self.config.key.as_ref().map(|key| key.render(&message, str::to_owned));
        message.subject = subject.unwrap_or_default();
        message.trusts_subject = true;
        message.key = key;
        message
    }
}

/// A value of an event, as one word of a subject of any kind of sink.
fn one_word(value: &str) -> String {
    let may_stand = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '~' | ':' | '@');
    value.chars().map(|c| if may_stand(c) { c } else { '_' }).collect()
}

impl Listener for Relay {
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let message = self.message(visit.event);
            let of_message = self.sink.destination(&message);
            let answers = self.sink.send(&[message]).await;
            let answer = answers.into_iter().next().unwrap_or_else(SinkError::unanswered);
            let (is_stalled, destination) = self.stall(&answer, of_message);
            Reply { is_stalled, destination, ..self.outcome(answer, of_message.is_some(), visit.event.waited()).into() }
        })
    }
}

/// The shortest rest of an event whose receiver is unavailable: some ask for it at once, and refuse it again.
const LEAST_REST: Duration = Duration::from_secs(1);
/// How long a host that has just started asks before it gives an event up: no host may have asked for days.
const ASKS_FOR: Duration = Duration::from_secs(10 * 60);
/// The longest rest of an event whose receiver, one of many, is unavailable, unless it asked for more.
const LONGEST_REST: Duration = Duration::from_secs(5 * 60);
/// The longest rest while the sink is down, or while a destination that all hosts share is unavailable, such as a topic: events resume
/// within a minute.
const LONGEST_REST_OF_ALL: Duration = Duration::from_secs(60);

impl Relay {
    /// Whether another host might deliver the event now, and the destination that this answer concerns; `None` for the whole sink. If the
    /// destination is closed to every host, hosts would only take turns to stand aside.
    fn stall(&self, answer: &Result<(), SinkError>, destination: Option<u64>) -> (bool, Option<u64>) {
        match answer {
            Err(SinkError::Down { .. }) => (true, None),
            Err(SinkError::Unavailable { .. }) => (destination.is_some(), destination),
            Ok(()) | Err(_) => (false, destination),
        }
    }

    /// Turns a sink's answer into the outcome of an event that has `waited` for its receiver. A receiver that is unavailable, or a sink
    /// that is down, costs no attempt and no deferral: a maintenance must not use them up. The event rests for half as long as it has
    /// waited. A refused message is counted and tried again: nearly always a configuration is wrong, and once an operator corrects it,
    /// the event is delivered. An event is given up only if a try failed after its `max_age`, with this event or another one: the receiver
    /// may have recovered since an earlier try. `has_destination`: whether the event's destination is that of all hosts, and not one
    /// receiver among many.
    fn outcome(&self, answer: Result<(), SinkError>, has_destination: bool, waited: Duration) -> Outcome {
        let sink = &self.config.sink;
        let (reason, least, longest, tried_ago) = match answer {
            Ok(()) => return Outcome::Done,
            Err(SinkError::Down { reason, retry_after, tried_ago }) => {
                (format!("the sink {sink} is down: {reason}"), retry_after, LONGEST_REST_OF_ALL, tried_ago)
            }
            // However long it has waited: it was not sent, and there may be room the next time.
            Err(SinkError::Crowded { reason }) => return Outcome::Busy { after: LEAST_REST, reason: reason.into() },
            Err(SinkError::Unavailable { reason, retry_after, tried_ago }) => {
                let least = retry_after.unwrap_or_default().max(LEAST_REST);
                let longest = if has_destination { LONGEST_REST_OF_ALL } else { LONGEST_REST };
                (format!("the receiver of the sink {sink} is unavailable: {reason}"), least, longest, tried_ago)
            }
            Err(SinkError::Closed { reason }) => {
                let reason = format!("the receiver of the sink {sink} is unavailable: {reason}");
                (reason, LEAST_REST, LONGEST_REST_OF_ALL, Duration::ZERO)
            }
            Err(error @ (SinkError::Rejected { .. } | SinkError::Denied { .. })) => {
                let message = format!("the sink {sink} refused the event: {error}");
                return Outcome::Failed(Failure { message, kind: FailureKind::Retryable, cause: Cause::Listener });
            }
            Err(error) => return Outcome::Failed(Failure::broken(Cause::Sink, format!("{sink}: {error}"))),
        };
        let waited_at_try = waited.saturating_sub(tried_ago);
        if self.max_age.is_some_and(|max_age| waited_at_try >= max_age && self.since.elapsed() >= ASKS_FOR.min(max_age)) {
            let message = format!(
                "the event waited for {}, longer than sinks.{sink}.max_age: {reason}; replay it when the receiver works again",
                span(waited)
            );
            return Outcome::Failed(Failure { message, kind: FailureKind::Unrecoverable, cause: Cause::Sink });
        }
        Outcome::Busy { after: (waited / 2).min(longest).max(least), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Envelope;

    const SECOND: Duration = Duration::from_secs(1);

    const HOUR: Duration = Duration::from_secs(3_600);

    fn relay(config: RelayConfig) -> Relay {
        Relay { sink: Arc::new(Nowhere), config, max_age: Some(72 * HOUR), since: Instant::now() }
    }

    #[test]
    fn an_unavailable_receiver_costs_no_attempt_and_all_else_does() {
        let relay = relay(RelayConfig::to("orders"));
        let reason = || "no".to_owned();
        let of = |error: SinkError, waited| relay.outcome(Err(error), false, waited);
        let busy = |after, reason: &'static str| Outcome::Busy { after, reason: reason.into() };
        assert_eq!(relay.outcome(Ok(()), false, HOUR), Outcome::Done);

        let down_since_try = |tried_ago| SinkError::Down { reason: reason(), retry_after: SECOND, tried_ago };
        let down = |waited| of(down_since_try(Duration::ZERO), waited);
        assert_eq!(down(Duration::ZERO), busy(SECOND, "the sink orders is down: no"));
        assert_eq!(down(HOUR), busy(LONGEST_REST_OF_ALL, "the sink orders is down: no"));
        let is_unavailable = "the receiver of the sink orders is unavailable: no";
        for (retry_after, waited, after) in [
            (None, Duration::ZERO, SECOND),
            (Some(Duration::ZERO), Duration::ZERO, SECOND),
            (None, 10 * SECOND, 5 * SECOND),
            (Some(20 * SECOND), 10 * SECOND, 20 * SECOND),
            (None, HOUR, LONGEST_REST),
            (Some(HOUR), HOUR, HOUR),
        ] {
            let outcome = of(SinkError::Unavailable { reason: reason(), retry_after, tried_ago: Duration::ZERO }, waited);
            assert_eq!(outcome, busy(after, is_unavailable), "asked for {retry_after:?} after {waited:?}");
        }

        let closed = |waited| of(SinkError::Closed { reason: reason() }, waited);
        assert_eq!(closed(Duration::ZERO), busy(SECOND, is_unavailable));
        assert_eq!(closed(HOUR), busy(LONGEST_REST_OF_ALL, is_unavailable), "it is opened for all");
        let unavailable = || SinkError::Unavailable { reason: reason(), retry_after: None, tried_ago: Duration::ZERO };
        let shared = Err(unavailable());
        assert_eq!(relay.outcome(shared, true, HOUR), busy(LONGEST_REST_OF_ALL, is_unavailable), "a topic works again for all");

        assert_eq!(of(SinkError::Crowded { reason: reason() }, HOUR), busy(SECOND, "no"), "it was not sent");

        let failed = |error: SinkError, waited| match of(error, waited) {
            Outcome::Failed(failure) => (failure.kind, failure.cause.is_breakage(), failure.to_string()),
            other => panic!("{other:?}"),
        };
        let broke = failed(SinkError::Failed { reason: reason() }, 72 * HOUR);
        assert_eq!(broke, (FailureKind::Retryable, true, "sink: orders: no".to_owned()), "the breaker counts it");
        for refused in [SinkError::Rejected { reason: reason() }, SinkError::Denied { reason: reason() }] {
            let wanted = (FailureKind::Retryable, false, "the sink orders refused the event: no".to_owned());
            assert_eq!(failed(refused, 72 * HOUR), wanted);
        }
        assert_eq!(of(unavailable(), 72 * HOUR), busy(LONGEST_REST, is_unavailable), "this host has asked for a moment only");
        let asked = Relay { since: relay.since.checked_sub(ASKS_FOR).expect("the machine is up"), ..relay };
        let given_up = asked.outcome(Err(unavailable()), false, 72 * HOUR);
        assert!(
            matches!(&given_up, Outcome::Failed(failure) if failure.kind == FailureKind::Unrecoverable
                && failure.message.contains("longer than sinks.orders.max_age: the receiver of the sink orders is unavailable: no")),
            "{given_up:?}"
        );
        assert!(matches!(asked.outcome(Err(unavailable()), false, 71 * HOUR), Outcome::Busy { .. }));
        let of_unsent = |waited| asked.outcome(Err(down_since_try(HOUR)), false, waited);
        assert!(matches!(of_unsent(72 * HOUR), Outcome::Busy { .. }), "the sink may have recovered since its last try");
        assert!(matches!(of_unsent(73 * HOUR), Outcome::Failed(_)), "a try failed after its max_age");
        let crowded = Err(SinkError::Crowded { reason: reason() });
        assert_eq!(asked.outcome(crowded, false, 72 * HOUR), busy(SECOND, "no"), "its receiver may work");
    }

    #[test]
    fn an_event_chooses_no_part_of_its_subjects_shape() {
        let envelope = Envelope::new("OrderPlaced").aggregate("Order", "a.>/../*# b").json(&1).expect("valid");
        let config = RelayConfig {
            subject: Some("shop.{aggregate_id}".parse().expect("valid")),
            key: Some("{aggregate_type}/{aggregate_id}".parse().expect("valid")),
            ..RelayConfig::to("orders")
        };
        let relay = relay(config);
        let message = relay.message(&Arc::new(Event::of(envelope).build()));
        assert_eq!(message.subject, "shop.a_________b");
        assert_eq!(message.key.as_deref(), Some("Order/a.>/../*# b"), "a key is any text");
    }

    struct Nowhere;

    #[async_trait::async_trait]
    impl Sink for Nowhere {
        async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
            vec![Ok(()); messages.len()]
        }
    }

    #[test]
    fn unavailable_destination_is_a_stall_only_if_another_host_may_reach_it() {
        let relay = relay(RelayConfig::to("orders"));
        let closed = Err(SinkError::Closed { reason: "no".to_owned() });
        let reason = || "no".to_owned();
        let unavailable = Err(SinkError::Unavailable { reason: reason(), retry_after: None, tried_ago: Duration::ZERO });
        let down = Err(SinkError::Down { reason: reason(), retry_after: SECOND, tried_ago: Duration::ZERO });

        assert_eq!(relay.stall(&closed, Some(1)), (false, Some(1)), "every host gets this answer");
        assert_eq!(relay.stall(&unavailable, Some(1)), (true, Some(1)));
        assert_eq!(relay.stall(&unavailable, None), (false, None), "one receiver among many");
        assert_eq!(relay.stall(&down, Some(1)), (true, None));
        assert_eq!(relay.stall(&Ok(()), Some(1)), (false, Some(1)));
    }

    #[test]
    fn faults_are_told_together() {
        let route = |event_type: &str| Route::new("Order", event_type).expect("valid");
        let sinks = Sinks::default().with("orders", Arc::new(Nowhere));
        let to = |sink: &str, event_type: &str| (route(event_type), RelayConfig::to(sink));
        let relays = [to("orders", "*"), to("orders", "*"), to("order", "OrderPaid")];
        let Err(faults) = registrations(&relays, &sinks, SECOND, 4) else { panic!("faults") };
        assert_eq!(faults.len(), 4, "{faults:#?}");
        assert!(faults.iter().any(|fault| fault == "routes.\"Order/*\" is given twice; one sink each"), "{faults:#?}");
        assert!(
            faults.iter().any(|fault| fault == "routes.\"Order/OrderPaid\".sink is `order`; the sinks are: orders"),
            "{faults:#?}"
        );
        assert!(registrations(&relays[..1], &sinks, 30 * SECOND, 4).is_ok());
    }
}
