//! Plugins that do not serve, or serve an older version.

use outbox::why::failed_plugin_severity;
use outbox_event::PluginState;

use super::{Finding, ONE_BY_ONE, Severity};
use crate::pages::known::plugins::{self, LivePlugin};
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::visible;

/// `is_required` says whether this host is not ready because the plugin of this name failed.
pub(super) fn plugins(snapshot: &Snapshot, is_required: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let all = plugins::of_all(&snapshot.nodes);
    let told = |trouble: Trouble| {
        let found: Vec<&LivePlugin> = all.iter().filter(|served| Trouble::of(served.plugin.state) == Some(trouble)).collect();
        let severity = match trouble {
            Trouble::Failed => failed_plugin_severity(&snapshot.routes),
            Trouble::Older => Severity::Warning,
        };
        let is_required = |served: &LivePlugin| trouble == Trouble::Failed && is_required(&served.plugin.name);
        let finding = |sentence: String, is_required: bool| {
            let severity = if is_required { Severity::Fault } else { severity };
            Finding::new(severity, sentence, "plugins", "Show plugins")
        };
        if found.len() > ONE_BY_ONE {
            return vec![finding(trouble.of_many(found.len()), found.iter().any(|served| is_required(served)))];
        }
        let one = |served: &&LivePlugin| {
            let finding = finding(trouble.of_one(served), is_required(served));
            match &served.plugin.error {
                Some(error) => finding.said(error.clone()),
                None => finding,
            }
        };
        found.iter().map(one).collect()
    };
    Trouble::ALL.into_iter().flat_map(told).collect()
}

/// The fault of a plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No version of it is running.
    Failed,
    /// An older version is running.
    Older,
}

impl Trouble {
    /// All of them, the worst first.
    const ALL: [Self; 2] = [Self::Failed, Self::Older];

    /// `None` for a plugin that serves or may yet serve, and for a state that this version does not know.
    pub(super) const fn of(state: PluginState) -> Option<Self> {
        match state {
            PluginState::Failed => Some(Self::Failed),
            PluginState::ServingOlder | PluginState::OlderLoads => Some(Self::Older),
            // The findings of routes name its open breakers.
            PluginState::BreakerOpen
            | PluginState::Serving
            | PluginState::Loads
            | PluginState::Loading
            | PluginState::Unknown => None,
        }
    }

    fn of_one(self, LivePlugin { plugin, hosts }: &LivePlugin) -> String {
        let name = visible(&plugin.name);
        let on = match hosts.as_slice() {
            [host] => format!(" on {}", visible(host)),
            hosts => format!(" on {} hosts", hosts.len()),
        };
        match self {
            Self::Failed => format!("Plugin {name} failed to load{on}, and no version of it is running."),
            Self::Older => {
                let version = plugin.version.as_deref();
                let older =
                    version.map_or_else(|| "an older version".to_owned(), |version| format!("version {}", visible(version)));
                format!("The new file of plugin {name} failed to load{on}; {older} is still serving.")
            }
        }
    }

    fn of_many(self, plugins: usize) -> String {
        match self {
            Self::Failed => format!("{plugins} plugins failed to load."),
            Self::Older => format!("The new files of {plugins} plugins failed to load; older versions are still serving."),
        }
    }
}
