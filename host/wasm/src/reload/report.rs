//! What `plugin check` finds in one component file.

use std::time::Duration;

use outbox_event::{PluginLimits, Route};
use serde::{Serialize, Serializer};

use crate::manifest::{Isolation, Limits};

/// What a look at one component file found.
#[derive(Clone, Debug, Serialize)]
pub struct PluginReport {
    /// The file's name without `.wasm`.
    pub name: String,
    /// What the component calls itself.
    pub described_name: String,
    /// What the component says of its version.
    pub version: String,
    /// SHA-256 in hex.
    pub digest: String,
    /// What it answers, sorted.
    pub routes: Vec<Route>,
    /// The interfaces that it asks for, sorted.
    pub imports: Vec<String>,
    /// What its manifest grants it, such as `emit` or `state (1000 keys, 1MiB)`.
    pub granted: Vec<String>,
    /// What it asks for and is not granted, each with the line to add.
    pub not_granted: Vec<String>,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// How long compiling took, or reading what had been compiled.
    #[serde(rename = "compile_ms", serialize_with = "milliseconds")]
    pub compile: Duration,
    /// Whether the cache had it compiled already.
    pub is_from_cache: bool,
    /// How long one instance would live.
    pub isolation: Isolation,
    /// What one call may use.
    #[serde(serialize_with = "in_numbers")]
    pub limits: Limits,
}

fn milliseconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(whole_milliseconds(*span))
}

fn whole_milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A manifest has texts such as "5s" and "64MiB", which a program that reads a report would have to take apart.
fn in_numbers<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    PluginLimits::from(*limits).serialize(serializer)
}

impl From<Limits> for PluginLimits {
    fn from(limits: Limits) -> Self {
        let Limits { fuel, deadline, memory, host_calls, concurrency } = limits;
        Self { fuel, deadline_ms: whole_milliseconds(deadline), memory_bytes: memory.0, host_calls, concurrency }
    }
}
