//! The state of plugins, as a host reports it: through the table of hosts, over HTTP, and to the dashboard.
//!
//! Programs that are built without plugins read it too, because they show the plugins of other hosts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Route;
use crate::text::shorten;
use crate::time::Timestamp;

/// How many plugins of a host are read.
const MOST_PLUGINS: usize = 1_000;
/// How many swaps of a plugin are kept.
pub const MOST_SWAPS: usize = 10;
/// The most routes of one plugin in a report.
const MOST_ROUTES: usize = 100;
/// The most dropped routes of one swap in a report.
const MOST_DROPPED: usize = 20;
/// The most bytes of an error, and of the path of a file, in a report.
const MOST_ERROR_BYTES: usize = 4 << 10;
/// The most bytes of one grant in a report, such as a long list of origins.
const MOST_GRANT_BYTES: usize = 512;
/// The most bytes of the reason in a report why a new version does not serve yet.
const MOST_PENDING_BYTES: usize = 512;
/// The most bytes of a name or a version in a report: as long as the name of a file can be.
const MOST_NAME_BYTES: usize = 255;
/// How many capabilities of a plugin are read; there are six kinds.
const MOST_CAPABILITIES: usize = 32;

/// A plugin as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
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
    #[serde(default)]
    pub routes: Vec<Route>,
    /// How many more routes it answers.
    #[serde(default)]
    pub more_routes: usize,
    /// Why the file as it is now does not serve; the version before it may serve still.
    pub error: Option<String>,
    /// The component file.
    #[serde(default)]
    #[cfg_attr(feature = "utoipa", schema(value_type = String))]
    pub file: PathBuf,
    /// What it may do and use, and what served before.
    #[serde(flatten)]
    pub details: PluginDetails,
}

/// What a plugin may do and use, and what served as it before. Empty where a host of an earlier version tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct PluginDetails {
    /// What the serving component asks for, and what its manifest grants.
    pub capabilities: Vec<PluginCapability>,
    /// What one call may use; `None` when none serves.
    pub limits: Option<PluginLimits>,
    /// Why a new version of its file does not serve yet; `None` if no new version is on its way, or none serves.
    pub pending: Option<String>,
    /// What became of its file since the host started, newest first; at most 10.
    pub swaps: Vec<PluginSwap>,
}

/// Something outside of the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct PluginSwap {
    /// When.
    pub at: Timestamp,
    /// `loaded`, `swapped`, `failed`, `last_good`, as in the metrics.
    pub result: String,
    /// What the component that served from then on says of its version; `None` where the file failed.
    pub version: Option<String>,
    /// The first 12 digits of the digest of the file; `None` where it could not be read.
    pub digest: Option<String>,
    /// The routes that the version before answered, and no listener after this change; at most 20.
    #[serde(default)]
    pub dropped: Vec<Route>,
}

/// Whether a plugin answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
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
    /// It broke so often that the breaker of at least one of its routes does not let a call through. After the pause of the breaker, the
    /// next event of the route is a trial.
    BreakerOpen,
    /// A state of a later version of this program.
    #[default]
    #[serde(other)]
    Unknown,
}

impl PluginStatus {
    /// Reads the plugins of a host's report. Skips each plugin that cannot be read, because the host may be of another version.
    pub(crate) fn read(entries: Vec<Value>) -> Vec<Self> {
        let read = entries.into_iter().take(MOST_PLUGINS).filter_map(|plugin| serde_json::from_value(plugin).ok());
        read.map(Self::bounded).collect()
    }

    /// Whoever can write into the table can tell anything: a digest is one, and texts and lists are no longer than a host's own.
    fn bounded(mut self) -> Self {
        self.digest = self.digest.filter(|digest| digest.len() <= 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        self.details.swaps.truncate(MOST_SWAPS);
        self.details.capabilities.truncate(MOST_CAPABILITIES);
        self.shortened()
    }

    /// Cuts texts and lists to the size that they may have in the report of a host, whatever the plugin declares.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        self.more_routes = self.more_routes.saturating_add(self.routes.len().saturating_sub(MOST_ROUTES));
        self.routes.truncate(MOST_ROUTES);
        if self.file.as_os_str().len() > MOST_ERROR_BYTES {
            let mut file = self.file.to_string_lossy().into_owned();
            shorten(&mut file, MOST_ERROR_BYTES);
            self.file = file.into();
        }
        let PluginDetails { capabilities, pending, swaps, .. } = &mut self.details;
        if let Some(pending) = pending {
            shorten(pending, MOST_PENDING_BYTES);
        }
        for capability in capabilities {
            shorten(&mut capability.name, MOST_NAME_BYTES);
            for text in [&mut capability.granted, &mut capability.to_add].into_iter().flatten() {
                shorten(text, MOST_GRANT_BYTES);
            }
        }
        for swap in swaps {
            swap.dropped.truncate(MOST_DROPPED);
            shorten(&mut swap.result, MOST_NAME_BYTES);
            for text in [&mut swap.version, &mut swap.digest].into_iter().flatten() {
                shorten(text, MOST_NAME_BYTES);
            }
        }
        shorten(&mut self.name, MOST_NAME_BYTES);
        if let Some(version) = &mut self.version {
            shorten(version, MOST_NAME_BYTES);
        }
        if let Some(error) = &mut self.error {
            shorten(error, MOST_ERROR_BYTES);
        }
        self
    }

    /// The first 12 digits of the digest, by which people know it.
    #[must_use]
    pub fn short_digest(&self) -> Option<&str> {
        self.digest.as_deref().map(|digest| digest.get(..12).unwrap_or(digest))
    }
}

impl PluginState {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::ServingOlder => "serving an older version",
            Self::Loads => "loads",
            Self::OlderLoads => "would serve an older version",
            Self::Failed => "failed",
            Self::Loading => "loading",
            Self::BreakerOpen => "breaker open",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_a_host_of_another_version_tells_of_hides_no_other() {
        let told = serde_json::json!([
            { "name": "later", "state": "resting", "mood": "calm" },
            { "unnamed": 1 },
            { "name": "mailer", "state": "serving", "routes": [] },
        ]);

        let read = PluginStatus::read(told.as_array().expect("a list").clone());

        let named: Vec<_> = read.iter().map(|plugin| (plugin.name.as_str(), plugin.state)).collect();
        assert_eq!(named, [("later", PluginState::Unknown), ("mailer", PluginState::Serving)]);
    }

    #[test]
    fn what_a_row_tells_that_was_written_by_hand_has_the_same_bound() {
        let long = "x".repeat(100_000);
        let routes = vec![serde_json::json!({ "aggregate_type": "Order", "event_type": "Paid" }); 1_000];
        let swap = serde_json::json!({ "at": "2026-01-01T00:00:00Z", "result": long, "version": long, "digest": long });
        let capability = serde_json::json!({ "name": long, "asked": true, "granted": long, "to_add": long });
        let told = serde_json::json!({
            "name": long, "version": long, "digest": long, "state": "failed", "routes": routes, "more_routes": usize::MAX,
            "error": long, "file": long, "pending": long, "swaps": vec![swap; 1_000], "capabilities": vec![capability; 1_000],
        });

        let read = PluginStatus::read(vec![told]);

        assert_eq!((read.len(), read[0].routes.len(), read[0].more_routes), (1, MOST_ROUTES, usize::MAX));
        assert_eq!((read[0].details.swaps.len(), read[0].details.capabilities.len()), (MOST_SWAPS, MOST_CAPABILITIES));
        let bytes = serde_json::to_string(&read).unwrap().len();
        assert!(bytes < 100_000, "all that is left of it is shorter than one of its texts, not {bytes} bytes");
    }

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

        let shortened = status.clone().shortened();

        assert_eq!((shortened.routes.len(), shortened.more_routes), (100, 900));
        assert_eq!(shortened.routes[..], status.routes[..100]);
        assert!(shortened.error.as_ref().is_some_and(|error| error.len() < 4_200 && error.ends_with("é…")));
        assert!(shortened.details.capabilities[0].granted.as_ref().is_some_and(|granted| granted.len() < 600));
        assert_eq!(shortened.clone().shortened(), shortened, "a second call changes nothing");
        let details = PluginDetails::default();
        let small = PluginStatus { routes: vec![route(1)], error: Some("why".to_owned()), details, ..status };
        assert_eq!(small.clone().shortened(), small);
        let older = r#"{"name":"a","version":null,"digest":null,"state":"serving","routes":[],"error":null,"file":"a.wasm"}"#;
        let older = serde_json::from_str::<PluginStatus>(older).unwrap();
        assert_eq!((older.more_routes, older.details), (0, PluginDetails::default()), "an older host tells of all its routes");
    }
}
