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
use crate::store::{Audit, AuditFilter, Store, StoreError};

/// How often the host compares its plugins with those that it last saw.
const CHECK: Duration = Duration::from_secs(1);
/// The age of the oldest records that are compared with the plugins of a host that starts.
const RECORDS_AGE: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The most records of one action that are compared.
const MOST_RECORDS: u32 = 1_000;

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
    /// For the host with this label. The plugins that `lister` lists now belong to its start: they are recorded only if hosts did
    /// not record these versions last.
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
        if self.lister.is_some() {
            self.plugins.recorded = match recorded_versions(&*self.store).await {
                Ok(versions) => Some(versions),
                Err(error) => {
                    self.metrics.db_error(&error);
                    tracing::warn!(error = %crate::chain(&error), "earlier plugin versions not read from the audit log");
                    None
                }
            };
        }
        for (action, selector) in self.plugins.changes_at_start() {
            self.record(action, &selector).await;
        }
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

/// The version of each plugin that hosts recorded last.
async fn recorded_versions(store: &dyn Store) -> Result<BTreeMap<String, String>, StoreError> {
    let since = store.now().await?.minus(RECORDS_AGE);
    let mut records = Vec::new();
    for action in ["load_plugin", "swap_plugin", "unload_plugin"] {
        let filter = AuditFilter { action: Some(action.to_owned()), since: Some(since), ..AuditFilter::default() };
        records.extend(store.list_audit(&filter, MOST_RECORDS).await?);
    }
    records.sort_by_key(|record| record.id);
    let mut versions = BTreeMap::new();
    for record in records {
        let Some(plugin) = record.selector["plugin"].as_str() else { continue };
        match record.selector["to"].as_str() {
            Some(version) => versions.insert(plugin.to_owned(), version.to_owned()),
            None => versions.remove(plugin),
        };
    }
    Ok(versions)
}

/// The plugins as they were when the host last looked.
#[derive(Debug, Default)]
struct Plugins {
    known: BTreeMap<String, Known>,
    /// The version of each plugin that hosts recorded before this one started; `None` if they are not known.
    recorded: Option<BTreeMap<String, String>>,
}

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
        Self { known: listed.into_iter().map(known).collect(), recorded: None }
    }

    /// The plugins that serve since the start, in another version than hosts recorded before.
    fn changes_at_start(&self) -> Vec<(&'static str, Value)> {
        let change = |(plugin, known): (&String, &Known)| {
            plugin_change_at_start(self.recorded.as_ref()?, plugin, known.serving.as_ref()?)
        };
        self.known.iter().filter_map(change).collect()
    }

    /// The changes since the last look: actions, and plugins with their versions.
    fn changes(&mut self, listed: Vec<PluginStatus>) -> Vec<(&'static str, Value)> {
        let mut changes = Vec::new();
        if listed.is_empty() {
            // A directory that has lost all plugins unloads none, and a host that stops lists none.
            return changes;
        }
        let is_listed = |name: &String| listed.iter().any(|status| status.name == *name);
        self.known.retain(|name, known| {
            let is_gone = !is_listed(name);
            if let Some(from) = known.serving.as_ref().filter(|_| is_gone) {
                changes.push(("unload_plugin", json!({ "plugin": name, "from": version(from) })));
            }
            !is_gone
        });
        for status in listed.into_iter().map(PluginStatus::shortened) {
            let known = self.known.entry(status.name.clone()).or_insert(Known { serving: None, is_starting: false });
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
                None if is_starting => {
                    let recorded = self.recorded.as_ref();
                    changes.extend(recorded.and_then(|recorded| plugin_change_at_start(recorded, plugin, &now)));
                }
                None => changes.push(("load_plugin", json!({ "plugin": plugin, "to": version(&now) }))),
            }
        }
        changes
    }
}

/// The change to record when a host starts with this version of a plugin. `None` if hosts recorded this version last.
fn plugin_change_at_start(
    recorded: &BTreeMap<String, String>,
    plugin: &str,
    now: &PluginSwap,
) -> Option<(&'static str, Value)> {
    let to = version(now);
    match recorded.get(plugin) {
        Some(from) if *from == to => None,
        Some(from) => Some(("swap_plugin", json!({ "plugin": plugin, "from": from, "to": to }))),
        None => Some(("load_plugin", json!({ "plugin": plugin, "to": to }))),
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
    fn start_with_another_version_than_was_recorded_is_a_swap() {
        let (same, other, late) =
            (swap(1, "loaded", Some("1.0.0")), swap(2, "loaded", Some("2.0.0")), swap(3, "loaded", Some("3.0.0")));
        let listed = |late: &[PluginSwap]| {
            vec![
                plugin("same", std::slice::from_ref(&same)),
                plugin("other", std::slice::from_ref(&other)),
                plugin("added", std::slice::from_ref(&other)),
                plugin("late", late),
            ]
        };
        let mut plugins = Plugins::at_start(listed(&[]));
        let recorded = [("same", "1.0.0 (digest-1)"), ("other", "1.9.0 (ab)"), ("late", "2.9.0 (cd)")];
        plugins.recorded = Some(recorded.map(|(plugin, version)| (plugin.to_owned(), version.to_owned())).into());

        let added = ("load_plugin", json!({ "plugin": "added", "to": "2.0.0 (digest-2)" }));
        let swapped = ("swap_plugin", json!({ "plugin": "other", "from": "1.9.0 (ab)", "to": "2.0.0 (digest-2)" }));
        assert_eq!(plugins.changes_at_start(), [added, swapped]);
        let swapped_late = json!({ "plugin": "late", "from": "2.9.0 (cd)", "to": "3.0.0 (digest-3)" });
        assert_eq!(plugins.changes(listed(std::slice::from_ref(&late))), [("swap_plugin", swapped_late)]);
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
