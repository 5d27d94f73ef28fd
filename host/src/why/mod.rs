//! Why an event stands where it stands, what happens next, and what somebody can do about it.
//!
//! [`explain`] asks the store for the [`Facts`]; all that follows is decided without I/O, so that every case is a plain test. The
//! command line, the dashboard and the HTTP API show the same [`Explanation`].

mod attempt;
mod by_hand;
mod explanation;
mod facts;
mod history;
mod pauses;
mod reason;
mod sentence;
mod state;

pub use attempt::attempt;
pub use by_hand::{ByHand, ManualAction, selector};
pub use explanation::{Counters, Explanation, Holder, explain};
pub use facts::Facts;
pub use history::Step;
pub use pauses::{covered, held_by, holding, passed_over, pause_in_full, paused, resume_command};
#[cfg(feature = "http")]
pub(crate) use reason::encoded;
pub use reason::{Action, ActionCode, Cause, ReasonCode};
pub use sentence::parts;
pub use state::State;
