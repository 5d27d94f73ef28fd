//! Plugins without which a host is not ready.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use outbox_event::text::escape;
use outbox_event::{PluginState, PluginStatus};

use super::reloader::Reloader;

/// The plugins that must serve.
#[derive(Clone, Debug)]
#[doc(hidden)] // for the host
pub struct RequiredPlugins {
    // What tells of them must not keep them, or a compiler would outlive its host's stop.
    reloader: Weak<Reloader>,
    names: Arc<BTreeSet<String>>,
}

impl RequiredPlugins {
    pub(super) fn new(reloader: &Arc<Reloader>, names: Arc<BTreeSet<String>>) -> Self {
        Self { reloader: Arc::downgrade(reloader), names }
    }

    /// A sentence for each that does not serve. One whose breaker is open does: it is there, and its events wait.
    pub fn missing(&self) -> Vec<String> {
        if self.names.is_empty() {
            return Vec::new();
        }
        let list = self.reloader.upgrade().map(|reloader| reloader.list()).unwrap_or_default();
        self.names.iter().filter_map(|name| missing(name, &list)).collect()
    }
}

/// Says which of them are not in the plugins directory, as the host starts: it runs without them, and is not ready.
pub(super) fn warn_of_absent(required: &BTreeSet<String>, list: &[PluginStatus]) {
    for name in required.iter().filter(|name| !list.iter().any(|status| status.name == **name)) {
        let plugin = escape(name);
        // At debug only: a program that announces readiness warns with all reasons why the host is not ready.
        tracing::debug!(
            target: "outbox::wasm::reload::required",
            %plugin,
            "a required plugin is not in the plugins directory; the host is not ready until it is there"
        );
    }
}

fn missing(name: &str, list: &[PluginStatus]) -> Option<String> {
    let shown = escape(name);
    let Some(status) = list.iter().find(|status| status.name == name) else {
        return Some(format!("the required plugin {shown} is not in the plugins directory"));
    };
    let error = status.error.as_deref().unwrap_or("nothing is known of why");
    match status.state {
        PluginState::Serving | PluginState::ServingOlder | PluginState::BreakerOpen => None,
        PluginState::Loading => Some(format!("the required plugin {shown} is still being loaded")),
        PluginState::Failed | PluginState::Loads | PluginState::OlderLoads | PluginState::Unknown => {
            Some(format!("the required plugin {shown} does not serve: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_required_plugin_is_missing_unless_a_version_of_it_serves() {
        let status = |state| PluginStatus {
            name: "mailer".to_owned(),
            version: None,
            digest: None,
            state,
            routes: Vec::new(),
            more_routes: 0,
            error: Some("no component".to_owned()),
            file: PathBuf::from("plugins/mailer.wasm"),
            details: Default::default(),
        };
        for state in [PluginState::Serving, PluginState::ServingOlder, PluginState::BreakerOpen] {
            assert_eq!(missing("mailer", &[status(state)]), None, "{state:?}");
        }
        for (state, part) in [(PluginState::Failed, "no component"), (PluginState::Loading, "still being loaded")] {
            assert!(missing("mailer", &[status(state)]).is_some_and(|said| said.contains(part)), "{state:?}");
        }
        let said = missing("other", &[status(PluginState::Serving)]);
        assert!(said.is_some_and(|said| said.contains("other is not in the plugins directory")));
    }
}
