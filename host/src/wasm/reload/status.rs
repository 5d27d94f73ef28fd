//! What is told of plugins: to `plugin list`, to `plugin check`, to the dashboard.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::event::Route;
use crate::time::Timestamp;
use crate::wasm::manifest::{Isolation, Limits};
use crate::wasm::text::cut;

/// The most routes of one plugin that a host tells of.
const TOLD_ROUTES: usize = 100;
/// The most bytes of the reason why a plugin does not serve that a host tells of.
const TOLD_ERROR_BYTES: usize = 4 << 10;
/// The most bytes of one grant, such as a long list of origins, that a host tells of.
const TOLD_GRANT_BYTES: usize = 512;

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
    /// What it answers, sorted; of a plugin with many routes a host tells other programs the first 100 only.
    pub routes: Vec<Route>,
    /// How many routes it answers beside those.
    #[serde(default)]
    pub more_routes: usize,
    /// Why the file as it is now does not serve; the version before it may serve still.
    pub error: Option<String>,
    /// The component file.
    pub file: PathBuf,
    /// What it may do and use, and what served before.
    #[serde(flatten)]
    pub details: PluginDetails,
}

/// What a plugin may do and use, and what served as it before. Empty where a host of an earlier version tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginDetails {
    /// What the serving component asks for, and what its manifest grants.
    pub capabilities: Vec<PluginCapability>,
    /// What one call may use; `None` when none serves.
    pub limits: Option<PluginLimits>,
    /// What became of its file since the host started, newest first; at most 10.
    pub swaps: Vec<PluginSwap>,
}

/// Something outside of the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginCapability {
    /// `config`, `secrets`, `emit`, `state`, `publish`, `http`.
    pub name: String,
    /// Whether the component asks for it.
    pub asked: bool,
    /// What the manifest grants of it, such as `state (1000 keys, 1MiB)`; `None` for nothing.
    pub granted: Option<String>,
    /// What to add to the manifest, where it is asked for and not granted and may be needed.
    pub to_add: Option<String>,
}

/// What one call may use, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginLimits {
    /// Instructions, roughly.
    pub fuel: u64,
    /// Time on the wall.
    pub deadline_ms: u64,
    /// The sum of all memories and tables.
    pub memory_bytes: u64,
    /// Calls of the host.
    pub host_calls: u32,
    /// Calls at once; `None` for half of the workers.
    pub concurrency: Option<usize>,
}

/// A change of what serves as a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginSwap {
    /// When.
    pub at: Timestamp,
    /// `loaded`, `swapped`, `failed`, `last_good`, as in the metrics.
    pub result: String,
    /// What the component that served from then on says of its version; `None` where the file failed.
    pub version: Option<String>,
    /// The first 12 digits of the digest of the file; `None` where it could not be read.
    pub digest: Option<String>,
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
    /// The file as it is now does not load, though a version that served before does; no host was asked. See the error.
    OlderLoads,
    /// It never could; see the error.
    Failed,
    /// It is being compiled, and answers when that is done.
    Loading,
    /// It broke so often that at least one of its routes rests for a while.
    Paused,
}

impl PluginStatus {
    /// As a host tells it to other programs through the database: of a bounded size, whatever the plugin declares.
    pub(super) fn told(mut self) -> Self {
        self.more_routes += self.routes.len().saturating_sub(TOLD_ROUTES);
        self.routes.truncate(TOLD_ROUTES);
        self.error = self.error.map(|error| {
            let told = cut(&error, TOLD_ERROR_BYTES);
            if told.len() < error.len() { format!("{told}…") } else { error }
        });
        for granted in self.details.capabilities.iter_mut().filter_map(|capability| capability.granted.as_mut()) {
            let told = cut(granted, TOLD_GRANT_BYTES);
            if told.len() < granted.len() {
                *granted = format!("{told}…");
            }
        }
        self
    }
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
    #[serde(rename = "compile_ms", serialize_with = "milliseconds")]
    pub compile: Duration,
    /// Whether the cache had it compiled already.
    pub was_compiled: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_tells_of_a_plugin_has_a_bound_and_says_what_is_left_out() {
        let route = |number| Route::new("Order", format!("Event{number:04}")).unwrap();
        let status = PluginStatus {
            name: "mailer".to_owned(),
            version: None,
            digest: None,
            state: PluginState::Failed,
            routes: (0..1_000).map(route).collect(),
            more_routes: 0,
            error: Some("é".repeat(100_000)),
            file: PathBuf::from("plugins/mailer.wasm"),
            details: PluginDetails {
                capabilities: vec![PluginCapability { granted: Some("http".repeat(10_000)), ..PluginCapability::default() }],
                ..PluginDetails::default()
            },
        };

        let told = status.clone().told();

        assert_eq!((told.routes.len(), told.more_routes), (100, 900));
        assert_eq!(told.routes[..], status.routes[..100]);
        assert!(told.error.as_ref().is_some_and(|error| error.len() < 4_200 && error.ends_with("é…")));
        assert!(told.details.capabilities[0].granted.as_ref().is_some_and(|granted| granted.len() < 600));
        assert_eq!(told.clone().told(), told, "told again, it is the same");
        let details = PluginDetails::default();
        let small = PluginStatus { routes: vec![route(1)], error: Some("why".to_owned()), details, ..status };
        assert_eq!(small.clone().told(), small);
        let older = r#"{"name":"a","version":null,"digest":null,"state":"serving","routes":[],"error":null,"file":"a.wasm"}"#;
        let older = serde_json::from_str::<PluginStatus>(older).unwrap();
        assert_eq!((older.more_routes, older.details), (0, PluginDetails::default()), "an older host tells of all its routes");
    }
}
