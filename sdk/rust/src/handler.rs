//! Which functions can answer a route.

use crate::payload::Payload;
use crate::{Answer, Event};

/// A function that answers a route: `fn(&Event) -> Answer`, or `fn(&Event, P) -> Answer` for a payload that serde can read from
/// JSON, or [`Text`](crate::Text), or [`Bytes`](crate::Bytes).
///
/// `Shape` only tells the two apart; the compiler finds it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a route",
    label = "not a listener function",
    note = "a listener function is `fn(&Event) -> Answer` or `fn(&Event, P) -> Answer`, where `P` derives `Deserialize`, or is `Text` or `Bytes`"
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

impl<F, P> Handler<(P,)> for F
where
    F: Fn(&Event, P) -> Answer,
    P: Payload,
{
    fn handle(&self, event: &Event) -> Answer {
        self(event, P::read(event)?)
    }
}
