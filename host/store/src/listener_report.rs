//! A host's report on its listeners in its row: which it has, and which of them get nowhere.

use std::fmt;

use outbox_event::Route;
use outbox_event::text::shorten;
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::stuck::ERROR_BYTES;

/// A route or pattern whose events a host gives back undelivered: the breaker of its listener is open, or its sink is down.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct StalledRoute {
    /// The route or pattern; empty for all events, when the host cannot read the table or store outcomes.
    pub route: String,
    /// The listener: `the sink NAME` or `native code`; empty for all events.
    pub listener: String,
    /// Why the last event was given back, at most 500 bytes.
    pub reason: String,
    /// Since when no event was answered. Measured by the host's clock; the host's row has the time by the database's clock.
    pub since: Timestamp,
}

/// The route with its listener: `Order/* (the sink orders)`; `any event` for all of them.
impl fmt::Display for StalledRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("any event");
        }
        write!(f, "{} ({})", self.route, self.listener)
    }
}

impl StalledRoute {
    /// The most routes that a host names.
    pub const NAMED: usize = 20;

    /// A route whose events are given back; long texts are cut.
    #[must_use]
    pub fn new(route: String, listener: String, reason: String, since: Timestamp) -> Self {
        Self { route, listener, reason, since }.bounded()
    }

    /// All events: the host cannot read the table or store outcomes.
    #[must_use]
    pub fn all(reason: String, since: Timestamp) -> Self {
        Self::new(String::new(), String::new(), reason, since)
    }

    /// Whether it stands for all events, since the host cannot read the table or store outcomes.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.route.is_empty()
    }

    /// Whether route and listener are the same, whatever the reason and the time.
    #[must_use]
    pub fn has_same_route(&self, other: &Self) -> bool {
        (&self.route, &self.listener) == (&other.route, &other.listener)
    }

    fn bounded(mut self) -> Self {
        for text in [&mut self.route, &mut self.listener, &mut self.reason] {
            shorten(text, ERROR_BYTES);
        }
        self
    }
}

/// An open circuit breaker: the listener of a route broke too often, and its host does not call it for a while.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct OpenBreaker {
    /// The route.
    #[serde(flatten)]
    pub route: Route,
    /// The listener: the name of a plugin, `the sink NAME`, or `native code`.
    pub listener: String,
    /// When the breaker opened. Measured by the host's clock; the host's row has the time by the database's clock.
    pub since: Timestamp,
    /// When the listener may be called again, for one event; by the same clock as `since`. In the past if no event has come since.
    pub next_try: Timestamp,
}

impl OpenBreaker {
    /// The most open breakers that a host names.
    pub const NAMED: usize = 20;

    /// Whether both are the same opening of the same breaker, whenever the next try is.
    #[must_use]
    pub fn is_same_opening(&self, other: &Self) -> bool {
        (&self.route, &self.listener, self.since) == (&other.route, &other.listener, other.since)
    }

    fn bounded(mut self) -> Self {
        shorten(&mut self.listener, ERROR_BYTES);
        self
    }
}

/// A host's report on its listeners, in its row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct ListenerReport {
    /// Stands for its listeners and their routes: hosts with the same digest can deliver the same. Empty for a host that is gone.
    pub digest: String,
    /// The routes whose events it cannot deliver, at most 20.
    pub stalled: Vec<StalledRoute>,
    /// The breakers of its listeners that are open, at most 20.
    #[serde(default)]
    pub open_breakers: Vec<OpenBreaker>,
    /// How many more are open.
    #[serde(default)]
    pub more_open_breakers: u64,
}

impl ListenerReport {
    /// The first 20 of the routes are kept. No breaker is open.
    #[must_use]
    pub fn new(digest: String, stalled: impl IntoIterator<Item = StalledRoute>) -> Self {
        let stalled = stalled.into_iter().take(StalledRoute::NAMED).map(StalledRoute::bounded).collect();
        Self { digest, stalled, open_breakers: Vec::new(), more_open_breakers: 0 }
    }

    /// With these open breakers; the first 20 are kept, the others counted.
    #[must_use]
    pub fn with_open_breakers(self, open: impl IntoIterator<Item = OpenBreaker>) -> Self {
        let mut open = open.into_iter();
        let open_breakers = open.by_ref().take(OpenBreaker::NAMED).map(OpenBreaker::bounded).collect();
        Self { open_breakers, more_open_breakers: open.count() as u64, ..self }
    }

    /// As JSON.
    pub(super) fn column(&self) -> String {
        serde_json::to_string(self).expect("texts are JSON")
    }

    /// Reads what a host wrote; empty if it cannot be read, because the host may be of another version.
    pub(super) fn read(column: Option<&str>) -> Self {
        let read: Self = column.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let named = Self::new(read.digest, read.stalled).with_open_breakers(read.open_breakers);
        Self { more_open_breakers: named.more_open_breakers.saturating_add(read.more_open_breakers), ..named }
    }
}

/// Another live host of the same mode, as a host that cannot deliver everything looks at it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// Where to find it.
    pub label: String,
    /// Most events that it may have in flight; 0 for a host that takes no partitions.
    pub room: u32,
    /// Its listeners, and which of them get nowhere.
    pub listeners: ListenerReport,
}

impl Peer {
    /// A host with this row.
    #[must_use]
    pub fn new(mut label: String, room: u32, listeners: ListenerReport) -> Self {
        shorten(&mut label, ERROR_BYTES);
        Self { label, room, listeners }
    }

    /// The most peers that are looked at.
    pub(super) const MOST: u32 = 1_000;
    /// The most bytes of a column that is read: a host writes fewer.
    pub(super) const MOST_BYTES: u32 = 65_536;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_breakers_beyond_the_first_are_counted() {
        let time = Timestamp::from_micros(0);
        let open = (0..OpenBreaker::NAMED + 3).map(|number| OpenBreaker {
            route: Route::new("Order", format!("E{number}")).expect("valid"),
            listener: "mailer".to_owned(),
            since: time,
            next_try: time,
        });

        let report = ListenerReport::default().with_open_breakers(open);

        assert_eq!((report.open_breakers.len(), report.more_open_breakers), (OpenBreaker::NAMED, 3));
        assert_eq!(ListenerReport::read(Some(&report.column())), report);
    }
}
