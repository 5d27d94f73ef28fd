//! The state of sinks, as a host reports it: through the table of hosts, over HTTP, and to the dashboard.
//!
//! Programs that are built without sinks read it too, because they show the sinks of other hosts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Route;
use crate::text::shorten;
use crate::time::Timestamp;

/// The most sinks of a host that are read.
const MOST_SINKS: usize = 1_000;
/// The most routes of one sink that a host reports.
const MOST_ROUTES: usize = 100;
/// The most routes of all sinks of a host that are read.
const MOST_ROUTES_OF_HOST: usize = 1_000;
/// The most bytes of a name, a kind or a target.
const NAME_BYTES: usize = 255;
/// The most bytes of the reason of an outage.
const REASON_BYTES: usize = 500;

/// A sink, as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct SinkStatus {
    /// Its name in the configuration.
    pub name: String,
    /// The kind, such as `nats`; `application` for a sink that is not configured.
    #[serde(default)]
    pub kind: String,
    /// The address that its messages go to, without credentials. Empty if it has no address.
    #[serde(default)]
    pub target: String,
    /// Whether it takes messages.
    pub state: SinkState,
    /// Since when and why it is down; `None` in any other state.
    #[serde(default)]
    pub outage: Option<SinkOutage>,
    /// When a message was last confirmed; `None` if no message was since the host started. The report of a busy sink to other hosts may
    /// have an earlier success of the last minute.
    #[serde(default)]
    pub last_success: Option<Timestamp>,
    /// How many of its receivers are unavailable, while others may work: paths of an endpoint, nodes of a cluster, or topics.
    #[serde(default)]
    pub unavailable_receivers: u32,
    /// The first of these by name: a path below the address, a node or a topic. A host names three.
    #[serde(default)]
    pub first_unavailable: Vec<String>,
    /// The routes that are relayed to it, sorted; a host reports the first 100 to other hosts.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// How many more routes are relayed to it.
    #[serde(default)]
    pub more_routes: usize,
}

/// Whether a sink takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub enum SinkState {
    /// It confirmed a message, and has not been down since.
    Working,
    /// It takes no messages. The host sends one message after each rest, to see whether it works again.
    Down,
    /// No message was confirmed since the host started, or no message was sent for a long time since an outage.
    Unconfirmed,
    /// A state of a later version of this program.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The outage of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct SinkOutage {
    /// When the host noticed the outage. Measured by the host's clock; the host's row has the time by the database's clock.
    pub since: Timestamp,
    /// Why the last message was not taken, without secrets.
    pub reason: String,
    /// When the next message is sent, if there is one. In the past: with the next message.
    pub next_try: Timestamp,
}

impl SinkStatus {
    /// The most unavailable receivers of one sink that a host names.
    pub const NAMED_RECEIVERS: usize = 3;

    /// Reads the sinks of a host's report. Skips each sink that cannot be read, because the host may be of another version.
    pub(crate) fn read(entries: Vec<Value>) -> Vec<Self> {
        let sinks =
            entries.into_iter().take(MOST_SINKS).filter_map(|sink| serde_json::from_value(sink).ok()).map(Self::bounded);
        let mut left = MOST_ROUTES_OF_HOST;
        let within_limit = |sink: Self| {
            let sink = sink.with_routes(left);
            left -= sink.routes.len();
            sink
        };
        sinks.map(within_limit).collect()
    }

    /// With texts and lists of a bounded size. Applied to rows that are read too: another program may have written them.
    pub(crate) fn bounded(mut self) -> Self {
        self = self.with_routes(MOST_ROUTES);
        self.first_unavailable.truncate(Self::NAMED_RECEIVERS);
        for text in [&mut self.name, &mut self.kind, &mut self.target].into_iter().chain(&mut self.first_unavailable) {
            shorten(text, NAME_BYTES);
        }
        if let Some(outage) = &mut self.outage {
            shorten(&mut outage.reason, REASON_BYTES);
        }
        self
    }

    /// With the first routes only; counts the others.
    fn with_routes(mut self, most: usize) -> Self {
        self.more_routes = self.more_routes.saturating_add(self.routes.len().saturating_sub(most));
        self.routes.truncate(most);
        self
    }

    /// Whether it is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state == SinkState::Down
    }
}

impl SinkState {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Down => "down",
            Self::Unconfirmed => "unconfirmed",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(reason: &str) -> SinkStatus {
        let time = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        SinkStatus {
            name: "orders".to_owned(),
            kind: "nats".to_owned(),
            target: "nats://broker".to_owned(),
            state: SinkState::Down,
            outage: Some(SinkOutage { since: time(1), reason: reason.to_owned(), next_try: time(2) }),
            last_success: Some(time(0)),
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: vec![Route::new("Order", "*").expect("valid")],
            more_routes: 0,
        }
    }

    #[test]
    fn an_unknown_state_is_read_as_unknown() {
        let read = SinkStatus::read(vec![json!({ "name": "orders", "state": "resting" })]);
        assert_eq!(read[0].state, SinkState::Unknown);
    }

    #[test]
    fn texts_and_lists_of_a_row_are_bounded() {
        let long = "x".repeat(100_000);
        let route = |number| Route::new("Order", format!("Event{number:04}")).expect("valid");
        let routes = (0..1_000).map(route).collect();
        let first_unavailable = vec![long.clone(); 100];
        let by_hand = SinkStatus {
            name: long.clone(),
            kind: long.clone(),
            target: long.clone(),
            first_unavailable,
            routes,
            ..status(&long)
        };

        let read = SinkStatus::read(vec![json!(by_hand)]);

        assert_eq!((read[0].routes.len(), read[0].more_routes), (MOST_ROUTES, 900));
        assert_eq!(read[0].first_unavailable.len(), SinkStatus::NAMED_RECEIVERS);
        let bytes = serde_json::to_string(&read).expect("plain data").len();
        assert!(bytes < 10_000, "{bytes}");
        assert_eq!(SinkStatus::read(vec![json!(read[0])]), read, "its size does not change again");

        let many = SinkStatus::read(vec![json!(read[0]); 11]);
        let routes: usize = many.iter().map(|sink| sink.routes.len()).sum();
        assert_eq!((routes, many[9].more_routes, many[10].more_routes), (MOST_ROUTES_OF_HOST, 900, 1_000));
    }
}
