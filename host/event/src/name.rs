//! Names with a rule: event types, aggregate types, and the route that the two make.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::wording;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// There is no text.
    #[error("{what} is empty; give it at least one character")]
    Empty {
        /// The field.
        what: &'static str,
    },
    /// The text does not fit its column.
    #[error("{what} has {chars} characters; at most {max} are allowed")]
    TooLong {
        /// The field.
        what: &'static str,
        /// How many characters it has.
        chars: usize,
        /// How many it may have.
        max: usize,
    },
    /// The text holds a character that a name must not hold.
    #[error("{what} holds the character {bad:?}; {hint}")]
    Character {
        /// The field.
        what: &'static str,
        /// The first such character.
        bad: char,
        /// What is allowed.
        hint: &'static str,
    },
}

/// Checks a text against the rule that all names share: 1 to `max` characters, none of them a control character.
pub(super) fn check(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    let chars = text.chars().count();
    if chars > max {
        return Err(NameError::TooLong { what, chars, max });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(bad) => Err(NameError::Character { what, bad, hint: "control characters are not allowed" }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and keeps it.
            ///
            /// # Errors
            /// When it is empty, too long, or holds a control character.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                check($what, text.as_ref(), $max)?;
                Ok(Self(Arc::from(text.as_ref())))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// What happened, for example `OrderPlaced`: 1 to 128 characters, compared byte by byte.
    EventType, "event_type", 128
}

name! {
    /// To what kind of thing it happened, for example `Order`: 1 to 64 characters, compared byte by byte.
    AggregateType, "aggregate_type", 64
}

impl AggregateType {
    /// The name of the aggregate type that is used when none is given.
    pub const GLOBAL: &'static str = "__GLOBAL__";

    /// The aggregate type that is used when none is given.
    #[must_use]
    pub fn global() -> Self {
        static GLOBAL: std::sync::OnceLock<AggregateType> = std::sync::OnceLock::new();
        GLOBAL.get_or_init(|| Self(Arc::from(Self::GLOBAL))).clone()
    }
}

impl Default for AggregateType {
    fn default() -> Self {
        Self::global()
    }
}

/// The pair that picks the listener of an event. One listener each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct Route {
    /// To what kind of thing it happened; `__GLOBAL__` when the writer said nothing.
    #[serde(default)]
    pub aggregate_type: AggregateType,
    /// What happened.
    pub event_type: EventType,
}

impl Route {
    /// Checks both names.
    ///
    /// # Errors
    /// When one of them is not a name; the message says which.
    pub fn new(aggregate_type: impl AsRef<str>, event_type: impl AsRef<str>) -> Result<Self, NameError> {
        Ok(Self { aggregate_type: AggregateType::new(aggregate_type)?, event_type: EventType::new(event_type)? })
    }

    /// The route of an event: as [`new`](Self::new), but neither half is [`ANY`](Self::ANY). A pause or a relay of a pattern would
    /// otherwise be taken for one of such events.
    ///
    /// # Errors
    /// When one of them is not a name of an event; the message says which.
    #[doc(hidden)] // for the host
    pub fn of_event(aggregate_type: impl AsRef<str>, event_type: impl AsRef<str>) -> Result<Self, NameError> {
        let route = Self::new(aggregate_type, event_type)?;
        if !route.is_pattern() {
            return Ok(route);
        }
        let what = if route.event_type.as_str() == Self::ANY { "event_type" } else { "aggregate_type" };
        Err(NameError::Character { what, bad: '*', hint: "alone it stands for any name; give a name" })
    }

    /// Stands for any name, where a route is a pattern.
    pub const ANY: &'static str = "*";

    /// Whether it is a pattern: one half or both are [`ANY`](Self::ANY).
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.aggregate_type.as_str() == Self::ANY || self.event_type.as_str() == Self::ANY
    }

    /// The known routes that may have been meant, at most three: those of this event type first, since an aggregate type is
    /// soon left out, then those of a similar name.
    #[doc(hidden)] // for our own program
    #[must_use]
    pub fn near<'r>(&self, known: impl IntoIterator<Item = &'r Self>) -> Vec<&'r Self> {
        const MOST: usize = 3;
        let names: BTreeMap<String, &Self> =
            known.into_iter().filter(|known| *known != self).map(|known| (known.to_string(), known)).collect();
        let (same_type, others): (Vec<&Self>, Vec<&Self>) =
            names.values().copied().partition(|known| known.event_type == self.event_type);
        let others = others.iter().map(ToString::to_string).collect::<Vec<_>>();
        let near = wording::near(&self.to_string(), others.iter().map(String::as_str));
        same_type.into_iter().chain(near.iter().map(|name| names[*name])).take(MOST).collect()
    }

    /// Whether this route, taken as a pattern, stands for another one.
    #[must_use]
    pub fn covers(&self, route: &Self) -> bool {
        (self.aggregate_type.as_str() == Self::ANY || self.aggregate_type == route.aggregate_type)
            && (self.event_type.as_str() == Self::ANY || self.event_type == route.event_type)
    }

    /// How exact a pattern is, the largest for a route that is none. The aggregate type counts more: `Order/*` is more exact than
    /// `*/OrderPlaced`. Of the patterns that cover one route no two are equally exact.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn exactness(&self) -> u8 {
        2 * u8::from(self.aggregate_type.as_str() != Self::ANY) + u8::from(self.event_type.as_str() != Self::ANY)
    }
}

/// `Order/OrderPlaced`.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.aggregate_type, self.event_type)
    }
}

/// Two texts, two names, or two enums made by [`names!`](crate::names), in any mixture.
impl<A: AsRef<str>, E: AsRef<str>> TryFrom<(A, E)> for Route {
    type Error = NameError;

    fn try_from((aggregate_type, event_type): (A, E)) -> Result<Self, NameError> {
        Self::new(aggregate_type, event_type)
    }
}

/// An event type alone is a route of the global aggregate type.
impl TryFrom<&str> for Route {
    type Error = NameError;

    fn try_from(event_type: &str) -> Result<Self, NameError> {
        Self::new(AggregateType::GLOBAL, event_type)
    }
}

/// Declares an enum whose variants are event types or aggregate types, so that a misspelt one does not compile.
///
/// ```
/// # use outbox_event as outbox;
/// outbox::names! {
///     /// What happens to orders.
///     pub enum OrderEvent { OrderPlaced, OrderPaid }
/// }
/// let envelope = outbox::Envelope::new(OrderEvent::OrderPlaced).json(&42)?;
/// assert_eq!(envelope.event_type().as_str(), "OrderPlaced");
///
/// outbox::names! { pub enum Aggregate { Order } }
/// let route = outbox::Route::try_from((Aggregate::Order, OrderEvent::OrderPlaced))?;
/// assert_eq!(route.to_string(), "Order/OrderPlaced");
/// # Ok::<(), outbox::EnvelopeError>(())
/// ```
/// Either kind of name, or a pair of both, is a route for a listener.
#[macro_export]
macro_rules! names {
    ($(#[$doc:meta])* $visibility:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name { $($(#[$variant_doc])* #[allow(missing_docs)] $variant),+ }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }
        }

        /// An event type alone is a route of the global aggregate type.
        impl TryFrom<$name> for $crate::Route {
            type Error = $crate::NameError;

            fn try_from(event_type: $name) -> Result<Self, Self::Error> {
                Self::try_from(event_type.as_ref())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_own_message() {
        let text = |result: Result<EventType, NameError>| result.expect_err("not a name").to_string();
        assert_eq!(text(EventType::new("")), "event_type is empty; give it at least one character");
        assert_eq!(text(EventType::new("x".repeat(129))), "event_type has 129 characters; at most 128 are allowed");
        assert_eq!(text(EventType::new("a\nb")), "event_type holds the character '\\n'; control characters are not allowed");
        assert!(EventType::new("ü".repeat(128)).is_ok(), "characters count, not bytes");
    }

    #[test]
    fn a_pattern_covers_what_its_halves_cover_and_the_aggregate_type_makes_it_more_exact() {
        let route = |text: &str| text.split_once('/').and_then(|(a, e)| Route::new(a, e).ok()).expect("valid");
        let placed = route("Order/OrderPlaced");
        let covering = ["*/*", "*/OrderPlaced", "Order/*", "Order/OrderPlaced"].map(route);
        assert!(covering.iter().all(|pattern| pattern.covers(&placed)));
        assert_eq!(covering.each_ref().map(Route::exactness), [0, 1, 2, 3]);
        assert_eq!(covering.each_ref().map(Route::is_pattern), [true, true, true, false]);
        assert!(["order/*", "*/OrderPaid", "Order/Order*"].map(route).iter().all(|pattern| !pattern.covers(&placed)));
    }

    #[test]
    fn names_differ_by_case() {
        assert_ne!(AggregateType::new("Order"), AggregateType::new("order"));
    }
}
