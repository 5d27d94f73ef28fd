//! Listeners that take the payload as a value and share state.

use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use outbox_event::wording::payload_fault;
use outbox_event::{Answer, DispatchResult, Event, Failure, Outcome};
use serde::de::DeserializeOwned;

use super::{Listener, Reply, Visit};

/// The context in which a typed listener is called: the event, and the state that all listeners share.
///
/// It reads as the [`Event`] itself: `context.id()`, `context.attempt()`, `context.headers()`.
#[derive(Debug)]
pub struct Context<T> {
    event: Arc<Event>,
    state: Arc<T>,
}

impl<T> Context<T> {
    /// The context for this event; for tests of listeners.
    #[must_use]
    pub fn new(event: Arc<Event>, state: Arc<T>) -> Self {
        Self { event, state }
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> &Arc<Event> {
        &self.event
    }

    /// The state that was passed to `OutboxBuilder::state`.
    #[must_use]
    pub fn state(&self) -> &Arc<T> {
        &self.state
    }
}

impl<T> Clone for Context<T> {
    fn clone(&self) -> Self {
        Self { event: self.event.clone(), state: self.state.clone() }
    }
}

impl<T> Deref for Context<T> {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

/// A function of a payload and a [`Context`], as a listener; see `OutboxBuilder::listener_json`.
pub struct JsonListener<P, T, F> {
    state: Arc<T>,
    function: F,
    payload: PhantomData<fn() -> P>,
}

impl<P, T, F> JsonListener<P, T, F> {
    /// A listener that calls this function, with this state.
    pub fn new<R>(state: Arc<T>, function: F) -> Self
    where
        F: Fn(P, Context<T>) -> R,
    {
        Self { state, function, payload: PhantomData }
    }
}

impl<P, T, F> std::fmt::Debug for JsonListener<P, T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonListener").field("payload", &std::any::type_name::<P>()).finish_non_exhaustive()
    }
}

impl<P, T, F, R, A, E> Listener for JsonListener<P, T, F>
where
    P: DeserializeOwned + 'static,
    T: Send + Sync + 'static,
    F: Fn(P, Context<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<A, E>> + Send + 'static,
    A: Into<DispatchResult> + 'static,
    E: Into<Failure> + 'static,
{
    fn call<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let answer = match read::<P>(visit.event) {
                Ok(payload) => (self.function)(payload, Context::new(visit.event.clone(), self.state.clone())),
                Err(failure) => return Outcome::Failed(failure).into(),
            };
            let answer: Answer = answer.await.map(Into::into).map_err(Into::into);
            Outcome::from(answer).into()
        })
    }
}

/// Deserializes the payload. A failure is unrecoverable: the same bytes would fail again.
fn read<P: DeserializeOwned>(event: &Event) -> Result<P, Failure> {
    if !is_json(event.content_type()) {
        return Err(unread(format_args!("its content type is `{}`, which is not JSON", event.content_type())));
    }
    event.payload().map_err(|error: serde_json::Error| unread(payload_fault::<P>(event.payload_bytes(), &error)))
}

fn unread(why: impl Display) -> Failure {
    Failure::unrecoverable(format_args!("invalid payload: {why}"))
}

/// Whether a content type says that the payload is JSON: `application/json`, `text/json`, or one with the suffix `+json`.
fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(media.as_str(), "application/json" | "text/json") || media.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use outbox_event::{Envelope, FailureKind, dead, retry_after};

    use super::*;

    type BoxError = Box<dyn std::error::Error + Send + Sync>;

    async fn answer(listener: &impl Listener, envelope: Envelope) -> Outcome {
        let event = Arc::new(Event::of(envelope).build());
        let (worker, batch, deferrals, max_attempts) = (0, 0, 0, 10);
        let visit = Visit { event: &event, worker, batch, deferrals, max_attempts, began: Instant::now() };
        listener.call(visit).await.outcome
    }

    fn text(payload: &str) -> Envelope {
        Envelope::new("OrderPlaced").aggregate("Order", "7").json_text(payload.to_owned()).expect("JSON")
    }

    #[tokio::test]
    async fn a_function_gets_the_value_the_event_and_the_state() {
        async fn add(number: u32, context: Context<u32>) -> Result<(), BoxError> {
            let id: u32 = context.aggregate_id().unwrap_or_default().parse()?;
            if number + **context.state() + id == 42 { Ok(()) } else { Err("a wrong sum".into()) }
        }
        let listener = JsonListener::new(Arc::new(30), add);

        assert_eq!(answer(&listener, text("5")).await, Outcome::Done);
        assert_eq!(answer(&listener, text("6")).await, Outcome::Failed(Failure::retryable("a wrong sum")));
    }

    #[tokio::test]
    async fn every_answer_can_be_given() {
        async fn listen(what: String, _: Context<()>) -> Result<DispatchResult, Failure> {
            match what.as_str() {
                "later" => Ok(retry_after(Duration::from_secs(1))),
                "dead" => Ok(dead("why")),
                "again" => Err(Failure::retryable_after(Duration::from_secs(2), "not yet")),
                "never" => Err(Failure::unrecoverable("no use")),
                _ => Err(std::io::Error::other("offline").into()),
            }
        }
        let listener = JsonListener::new(Arc::new(()), listen);

        for (what, outcome) in [
            ("later", Outcome::RetryAfter(Duration::from_secs(1))),
            ("dead", Outcome::Dead("why".to_owned())),
            ("again", Outcome::Failed(Failure::retryable_after(Duration::from_secs(2), "not yet"))),
            ("never", Outcome::Failed(Failure::unrecoverable("no use"))),
            ("?", Outcome::Failed(Failure::retryable("offline"))),
        ] {
            assert_eq!(answer(&listener, text(&format!("{what:?}"))).await, outcome, "{what}");
        }
    }

    #[tokio::test]
    async fn a_payload_of_another_shape_is_dead_at_once_and_its_fault_is_named() {
        let listener = JsonListener::new(Arc::new(()), async |_: Vec<u8>, _: Context<()>| Ok::<_, Failure>(()));
        let bytes = Envelope::new("OrderPlaced").bytes("text/plain", "[1]").expect("good");

        for (envelope, fault) in [
            (text("[1, 256]"), "invalid payload: `[1]` is 256, but must be a whole number from 0 to 255"),
            (text("{}"), "invalid payload: it is a group of named values, but must be a list"),
            (bytes, "its content type is `text/plain`, which is not JSON"),
        ] {
            let Outcome::Failed(failure) = answer(&listener, envelope).await else { panic!("{fault}") };
            assert_eq!(failure.kind, FailureKind::Unrecoverable);
            assert!(failure.message.contains(fault), "{}", failure.message);
        }
        for content_type in ["application/cloudevents+json", "Text/JSON; charset=utf-8"] {
            let json = Envelope::new("OrderPlaced").bytes(content_type, "[1]").expect("good");
            assert_eq!(answer(&listener, json).await, Outcome::Done, "{content_type}");
        }
    }
}
