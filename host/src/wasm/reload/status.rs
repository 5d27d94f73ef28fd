//! What is told of plugins: to `plugin list`, to `plugin check`, to the dashboard.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Route;
use crate::units::duration;
use crate::wasm::manifest::{Isolation, Limits};

/// A plugin as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginStatus {
    /// The file's name without `.wasm`.
    pub name: String,
    /// What the serving component says; `None` when none serves.
    pub version: Option<String>,
    /// SHA-256 of the serving component, in hex; of the file when none serves, `None` when that could not be read.
    pub digest: Option<String>,
    /// Whether it answers.
    pub state: PluginState,
    /// What it answers, sorted.
    pub routes: Vec<Route>,
    /// Why the file as it is now does not serve; the version before it may serve still.
    pub error: Option<String>,
    /// The component file.
    pub file: PathBuf,
}

/// Whether a plugin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginState {
    /// It answers its routes.
    Serving,
    /// A version that was loaded before answers, since the file as it is now does not load; see the error.
    ServingOlder,
    /// It loads, and no host was asked whether it serves.
    Loads,
    /// It never could; see the error.
    Failed,
    /// It is being compiled, and answers when that is done.
    Loading,
    /// It broke so often that at least one of its routes rests for a while.
    Paused,
}

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
    #[serde(with = "duration")]
    pub compile: Duration,
    /// Whether the cache had it compiled already.
    pub was_compiled: bool,
    /// How long one instance would live.
    pub isolation: Isolation,
    /// What one call may use.
    pub limits: Limits,
}
