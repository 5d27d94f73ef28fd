//! The stored text of an event that no listener answers: written by the dispatcher, and recognized where the event is explained.

use outbox_event::{NO_LISTENER, Route};

/// The text before the reason why an event waits for a listener instead of being given up.
const WAITS_FOR_ONE: &str = "; it waits for one: ";
/// Why events of a remembered route wait.
#[doc(hidden)] // for the host
pub const HAD_LISTENER: &str = "it had a listener before, or has one in another host";
/// Why events wait in a host without listeners.
#[doc(hidden)] // for the host
pub const NO_LISTENER_AT_ALL: &str = "this host has no listener at all";

/// The text if no listener answers the route; `hint` names the routes that may have been meant.
pub(super) fn no_listener(route: &Route, hint: &str) -> String {
    format!("{NO_LISTENER} {route} ({hint})")
}

/// The text of an event that waits for a listener, and why.
#[doc(hidden)] // for the host
pub fn waits_for_one(no_listener: &str, why: &str) -> String {
    format!("{no_listener}{WAITS_FOR_ONE}{why}")
}

/// The parts of such a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct NoListener<'t> {
    /// The text after the first words: the route, and the hint in brackets.
    pub said: &'t str,
    /// Why the event waits for a listener. `None` if it was given up.
    pub awaited: Option<&'t str>,
}

impl<'t> NoListener<'t> {
    /// Parses a stored text. `None` if it is not about an event that no listener answered.
    pub fn read(text: &'t str) -> Option<Self> {
        let rest = text.strip_prefix(NO_LISTENER)?;
        let said = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
        Some(match said.rsplit_once(WAITS_FOR_ONE) {
            Some((said, why)) => Self { said, awaited: Some(why) },
            None => Self { said, awaited: None },
        })
    }
}

/// Whether a stored error says that no listener answered the route of the event.
#[must_use]
pub fn is_unroutable(error: &str) -> bool {
    NoListener::read(error).is_some()
}

/// Why a parked event waits for a listener. Omits the name of its route, so that the text is the same for all events that wait for the same
/// reason. The whole text if it gives no such reason.
#[must_use]
pub fn awaited(parked: &str) -> &str {
    NoListener::read(parked).and_then(|none| none.awaited).unwrap_or(parked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_why_an_event_waits_is_found_again() {
        let none = no_listener(&Route::new("Order", "Paid").unwrap(), "1 route is answered");

        assert!(is_unroutable(&none) && is_unroutable(NO_LISTENER) && !is_unroutable("no listener answersthis"));
        assert_eq!(awaited(&waits_for_one(&none, "the plugin mailer is loading")), "the plugin mailer is loading");
        assert_eq!(awaited(&none), none);
        assert_eq!(awaited("paused; it waits for one: day"), "paused; it waits for one: day");
    }
}
