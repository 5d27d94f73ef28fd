//! Which functions can answer a route.

use serde::de::DeserializeOwned;

use crate::{Answer, Event};

/// A function that answers a route: `fn(&Event) -> Answer`, or `fn(&Event, Payload) -> Answer` for a payload that serde can
/// read from JSON.
///
/// `Shape` only tells the two apart; the compiler finds it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a route",
    label = "not a listener function",
    note = "a listener function is `fn(&Event) -> Answer` or `fn(&Event, Payload) -> Answer`, where `Payload` derives `Deserialize`"
)]
pub trait Handler<Shape> {
    /// Answers one delivery.
    ///
    /// # Errors
    /// What the function failed with, or an unrecoverable failure when the payload does not parse.
    fn handle(&self, event: &Event) -> Answer;
}

impl<F> Handler<()> for F
where
    F: Fn(&Event) -> Answer,
{
    fn handle(&self, event: &Event) -> Answer {
        self(event)
    }
}

impl<F, Payload> Handler<(Payload,)> for F
where
    F: Fn(&Event, Payload) -> Answer,
    Payload: DeserializeOwned,
{
    fn handle(&self, event: &Event) -> Answer {
        self(event, event.json()?)
    }
}
