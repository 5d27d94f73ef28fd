//! What is said of an event that no listener answers: written by the dispatcher, recognised by whoever explains the event.

use outbox_event::Route;

/// How it begins. Also the kind of such an error.
#[doc(hidden)] // for the host
pub const NO_LISTENER: &str = "no listener answers";
/// What stands before the reason for which an event waits for a listener instead of being given up.
const WAITS_FOR_ONE: &str = "; it waits for one: ";
/// Why events of a route wait that is remembered.
#[doc(hidden)] // for the host
pub const HAD_LISTENER: &str = "it had a listener before, or has one in another host";
/// Why events wait where nothing is answered.
#[doc(hidden)] // for the host
pub const NO_LISTENER_AT_ALL: &str = "this host has no listener at all";

/// Nobody answers the route; `hint` names the routes that may have been meant.
pub(super) fn no_listener(route: &Route, hint: &str) -> String {
    format!("{NO_LISTENER} {route} ({hint})")
}

/// The same of an event that waits for a listener.
#[doc(hidden)] // for the host
pub fn waits_for_one(no_listener: &str, why: &str) -> String {
    format!("{no_listener}{WAITS_FOR_ONE}{why}")
}

/// What such a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct NoListener<'t> {
    /// What follows the first words: the route, and the hint in brackets.
    pub said: &'t str,
    /// Why the event waits for a listener; `None` when it was given up.
    pub awaited: Option<&'t str>,
}

impl<'t> NoListener<'t> {
    /// What a stored text says of an event that no listener answered; `None` for every other text.
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

/// Why a parked event waits for a listener, without the name of its route: the same for all events that wait for the same
/// reason. The whole text where it gives no such reason.
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
