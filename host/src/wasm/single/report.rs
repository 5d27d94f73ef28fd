//! What one call of a plugin came to, whole: what a [`PluginHost`](crate::wasm::PluginHost) tells of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Effects, GuestCost};
use crate::listener::Outcome;
use crate::wasm::bindings::outbox::listener::log::Level;
use crate::wasm::single::outside::Outside;

/// One call: its answer, what the guest asked for, and what it cost. Nothing in it has happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallReport {
    /// What the call came to.
    pub outcome: Outcome,
    /// Follow-up events and changes of state that would be committed with the outcome; none for an outcome that is no answer.
    pub effects: Effects,
    /// The lines that it wrote, in order, as it wrote them but without its secrets: text of an untrusted guest.
    pub lines: Vec<LogLine>,
    /// Lines beyond the budget of a call.
    pub lines_dropped: u32,
    /// What it asked for and was not granted.
    pub refused: Vec<Refused>,
    /// What it did outside its memory that could have failed, in order.
    pub outside: Vec<Outside>,
    /// Fuel that making the instance took; 0 for a kept one.
    pub init_fuel: u64,
    /// Time on the wall, instantiation included.
    pub took: Duration,
    /// What the call used.
    pub used: GuestCost,
    /// Whether the instance had answered before.
    pub instance: InstanceUse,
}

/// Whether an instance has answered before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceUse {
    /// Made for this call.
    #[default]
    Fresh,
    /// Kept from an earlier call.
    Kept,
}

/// One line of a guest's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// How important the guest finds it. Standard output is `info`, standard error `warn`.
    pub level: LogLevel,
    /// The text.
    pub message: String,
    /// Names and values beside it.
    pub fields: Vec<(String, String)>,
}

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// For whoever looks for a fault.
    Debug,
    /// What happened.
    Info,
    /// It may be wrong.
    Warn,
    /// It is wrong.
    Error,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Trace => Self::Trace,
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

/// Something that a guest asked for and was not granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// What it asked for, such as `an event to emit`.
    pub what: String,
    /// Why it was refused, and the line that grants it.
    pub advice: String,
}
