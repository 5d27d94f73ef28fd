//! The changes that this host makes by itself, as records of the audit log: its start and stop, and the plugins that it loads, swaps and
//! unloads. A record that cannot be written is logged and dropped: no event waits for the audit log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outbox_event::{PluginState, PluginStatus, PluginSwap};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::PluginLister;
use crate::metrics::Metrics;
use crate::store::{Audit, Store};

/// How often the host compares its plugins with those that it last saw.
const CHECK: Duration = Duration::from_secs(1);

/// Records the changes of this host until it stops.
pub(crate) struct ChangeLog {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    /// The host's label, under which it is listed as well.
    host: Audit,
    /// The mode and the version of the host, for the records of its start and stop.
    about: Value,
    /// `None` without plugins.
    lister: Option<PluginLister>,
    plugins: Plugins,
}

impl ChangeLog {
    /// For the host with this label. The plugins that `lister` lists now belong to its start.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
        label: &str,
        mode: &str,
        lister: Option<PluginLister>,
    ) -> Self {
        let about = json!({ "mode": mode, "version": env!("CARGO_PKG_VERSION") });
        let plugins = Plugins::at_start(lister.as_ref().map(|list| list()).unwrap_or_default());
        Self { store, metrics, host: Audit::by(label), about, lister, plugins }
    }

    /// Records the start, then changes of plugins, and the stop when the host has left.
    pub(crate) async fn run(mut self, mut left: watch::Receiver<bool>) {
        self.record("start_host", &self.about).await;
        loop {
            tokio::select! {
                _ = left.wait_for(|left| *left) => break,
                () = self.next_check() => {}
            }
            let listed = self.lister.as_ref().map(|list| list()).unwrap_or_default();
            for (action, selector) in self.plugins.changes(listed) {
                self.record(action, &selector).await;
            }
        }
        self.record("stop_host", &self.about).await;
    }

    /// A host without plugins has nothing to compare.
    async fn next_check(&self) {
        match self.lister {
            Some(_) => tokio::time::sleep(CHECK).await,
            None => std::future::pending().await,
        }
    }

    async fn record(&self, action: &str, selector: &Value) {
        if let Err(error) = self.store.note(&self.host, action, selector, 1).await {
            self.metrics.db_error(&error);
            tracing::warn!(action, %selector, error = %crate::chain(&error), "change not recorded in the audit log");
        }
    }
}

/// The plugins as they were when the host last looked.
#[derive(Debug, Default)]
struct Plugins(BTreeMap<String, Known>);

/// One plugin as it was.
#[derive(Debug)]
struct Known {
    /// When and with what the serving version began to serve; `None` if none serves.
    serving: Option<PluginSwap>,
    /// Whether it has been loading since the host started, so that its first version belongs to the start.
    is_starting: bool,
}

impl Plugins {
    fn at_start(listed: Vec<PluginStatus>) -> Self {
        let known = |status: PluginStatus| {
            let is_starting = status.state == PluginState::Loading;
            (status.name.clone(), Known { serving: serving(&status), is_starting })
        };
        Self(listed.into_iter().map(known).collect())
    }

    /// The changes since the last look: actions, and plugins with their versions.
    fn changes(&mut self, listed: Vec<PluginStatus>) -> Vec<(&'static str, Value)> {
        let mut changes = Vec::new();
        if listed.is_empty() {
            // A directory that has lost all plugins unloads none, and a host that stops lists none.
            return changes;
        }
        let is_listed = |name: &String| listed.iter().any(|status| status.name == *name);
        self.0.retain(|name, known| {
            let is_gone = !is_listed(name);
            if let Some(from) = known.serving.as_ref().filter(|_| is_gone) {
                changes.push(("unload_plugin", json!({ "plugin": name, "from": version(from) })));
            }
            !is_gone
        });
        for status in listed.into_iter().map(PluginStatus::shortened) {
            let known = self.0.entry(status.name.clone()).or_insert(Known { serving: None, is_starting: false });
            let Some(now) = serving(&status) else {
                // If a file has failed, the version that is loaded later does not belong to the start.
                known.is_starting &= status.state == PluginState::Loading;
                continue;
            };
            if known.serving.as_ref() == Some(&now) {
                continue;
            }
            let is_starting = std::mem::take(&mut known.is_starting);
            let plugin = &status.name;
            match known.serving.replace(now.clone()) {
                Some(from) => {
                    let selector = json!({ "plugin": plugin, "from": version(&from), "to": version(&now) });
                    changes.push(("swap_plugin", selector));
                }
                None if is_starting => {}
                None => changes.push(("load_plugin", json!({ "plugin": plugin, "to": version(&now) }))),
            }
        }
        changes
    }
}

/// The last swap after which a version served; files that failed since then are left out.
fn serving(status: &PluginStatus) -> Option<PluginSwap> {
    status.details.swaps.iter().find(|swap| swap.version.is_some()).cloned()
}

/// The version and the digest of the component file: `1.4.0 (0f3a9c41d2be)`.
fn version(swap: &PluginSwap) -> String {
    let of = |text: &Option<String>| text.as_deref().unwrap_or("?").to_owned();
    format!("{} ({})", of(&swap.version), of(&swap.digest))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use outbox_event::PluginDetails;

    use super::*;
    use crate::time::Timestamp;

    fn swap(second: i64, result: &str, version: Option<&str>) -> PluginSwap {
        let digest = format!("digest-{second}");
        let (at, version) = (Timestamp::from_micros(second * 1_000_000), version.map(str::to_owned));
        PluginSwap { at, result: result.to_owned(), version, digest: Some(digest), dropped: Vec::new() }
    }

    /// A plugin with these swaps, the newest first.
    fn plugin(name: &str, swaps: &[PluginSwap]) -> PluginStatus {
        PluginStatus {
            name: name.to_owned(),
            version: None,
            digest: None,
            state: if swaps.is_empty() { PluginState::Loading } else { PluginState::Serving },
            routes: Vec::new(),
            more_routes: 0,
            error: None,
            file: PathBuf::new(),
            details: PluginDetails { swaps: swaps.to_vec(), ..PluginDetails::default() },
        }
    }

    #[test]
    fn loads_swaps_and_unloads_after_the_start_are_changes_and_failed_files_are_none() {
        let (first, failed, second) =
            (swap(1, "loaded", Some("1.0.0")), swap(2, "failed", None), swap(3, "swapped", Some("1.1.0")));
        let other = || plugin("other", &[swap(1, "loaded", Some("3.0.0"))]);
        let mut plugins = Plugins::at_start(vec![plugin("mailer", std::slice::from_ref(&first)), other()]);

        assert_eq!(plugins.changes(vec![plugin("mailer", std::slice::from_ref(&first)), other()]), []);
        assert_eq!(plugins.changes(vec![plugin("mailer", &[failed.clone(), first.clone()]), other()]), []);
        let swapped = plugins.changes(vec![plugin("mailer", &[second, failed, first]), other()]);
        let wanted = json!({ "plugin": "mailer", "from": "1.0.0 (digest-1)", "to": "1.1.0 (digest-3)" });
        assert_eq!(swapped, [("swap_plugin", wanted)]);

        assert_eq!(plugins.changes(Vec::new()), [], "the directory may not be mounted");
        let moved = plugins.changes(vec![other(), plugin("added", &[swap(4, "loaded", Some("0.1.0"))])]);
        let unloaded = json!({ "plugin": "mailer", "from": "1.1.0 (digest-3)" });
        let loaded = json!({ "plugin": "added", "to": "0.1.0 (digest-4)" });
        assert_eq!(moved, [("unload_plugin", unloaded), ("load_plugin", loaded)]);
    }

    #[test]
    fn what_was_still_loading_at_the_start_belongs_to_the_start() {
        let mut plugins = Plugins::at_start(vec![plugin("mailer", &[])]);
        let first = swap(1, "loaded", Some("1.0.0"));

        assert_eq!(plugins.changes(vec![plugin("mailer", std::slice::from_ref(&first))]), []);
        let again = plugins.changes(vec![plugin("mailer", &[swap(2, "swapped", Some("1.0.0")), first])]);
        assert_eq!(again.iter().map(|(action, _)| *action).collect::<Vec<_>>(), ["swap_plugin"], "another manifest");
    }
}
