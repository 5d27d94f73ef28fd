//! Why an event is in its state, what happens next, and what can be done about it.
//!
//! [`explain`] reads the [`Facts`] from the store; the rest is decided without I/O, so every case is a plain test. The command
//! line, the dashboard and the HTTP API show the same [`Explanation`].

mod attempt;
mod by_hand;
mod changes;
mod explanation;
mod facts;
mod history;
mod parked;
mod pauses;
mod preceding;
mod reason;
mod recent;
mod scope;
mod sentence;
mod severity;
mod state;
mod waits;

pub use by_hand::ByHand;
pub use changes::Change;
pub use explanation::{Counters, Explanation, Holder, explain};
pub use facts::Facts;
pub use history::Step;
pub use reason::{Action, ActionCode, Cause, ReasonCode};
pub use state::State;

// For our own program and HTTP API, which show the same: no part of the library's promise.
#[doc(hidden)]
pub use attempt::attempt;
#[doc(hidden)]
pub use changes::{changes, selector};
#[doc(hidden)]
pub use parked::{MISSPELT, first_listener, may_be_misspelt, waits_for_plugin};
#[doc(hidden)]
pub use pauses::{Pauses, covered, holding, passed_over, resume_command};
#[doc(hidden)]
pub use preceding::preceding_change;
#[doc(hidden)]
pub use recent::RecentChanges;
#[doc(hidden)]
pub use scope::Scope;
#[doc(hidden)]
pub use sentence::parts;
#[doc(hidden)]
pub use severity::{down_sink_severity, failed_plugin_severity, unanswered_severity, wait_severity};
#[doc(hidden)]
pub use waits::{LONG_WAIT, MOST_WAITING, OldestWait, waits_without_down_sinks};

#[doc(hidden)]
pub use crate::text::encoded;
