//! The plugins directory, and the plugins that running hosts serve.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use outbox::store::{Finding, NodeRecord};
use outbox::wasm::Manifest;
use outbox::{Mode, Route};

use crate::config::{Flags, Settings};
use crate::host;
use crate::output::{argument, routes as names, short};
use crate::plugins::{self, PluginState, PluginStatus};

/// The findings of the plugins directory, and the routes that its plugins answer.
#[derive(Default)]
pub(in crate::doctor) struct Plugins {
    /// When `none_here`, the first one says so.
    pub(in crate::doctor) findings: Vec<Finding>,
    /// Empty also when that is not known: no directory, or hosts whose listeners are code.
    pub(in crate::doctor) routes: Vec<Route>,
    /// Every manifest that can be read: of the configuration, and beside components.
    pub(in crate::doctor) manifests: BTreeMap<String, Manifest>,
    /// Whether plugins are wanted, and the directory is missing or holds no component.
    pub(in crate::doctor) none_here: bool,
    /// The plugins that do not load here.
    pub(in crate::doctor) failed: Vec<PluginStatus>,
}

/// Loads every plugin, without serving it.
pub(in crate::doctor) async fn plugins(settings: &Settings) -> Plugins {
    let config = &settings.config;
    let manifests = config.plugins.manifests.clone();
    let alone = |finding| Plugins { findings: vec![finding], manifests: manifests.clone(), ..Plugins::default() };
    if config.mode == Mode::WriterOnly {
        return alone(Finding::good("plugins", "mode is writer_only: this host delivers nothing"));
    }
    if !host::wants_plugins(config) {
        return alone(Finding::good("plugins", "no plugins directory: this host only relays to sinks"));
    }
    let dir = config.plugins.dir.display();
    if !config.plugins.dir.exists() {
        let what = format!("the plugins directory {dir} does not exist, and `outbox run` does not start without it");
        let fix = format!("mkdir -p {}\nor name another directory with plugins.dir", argument(&dir.to_string()));
        return Plugins { none_here: true, ..alone(Finding::fault("plugins", what, fix)) };
    }
    match plugins::inspect(config).await {
        Err(error) => {
            let fix = format!("correct {dir}, or name another directory with plugins.dir");
            alone(Finding::fault("plugins", outbox::chain(&error), fix))
        }
        Ok(found) => {
            let sections = config.plugins.manifests.keys().map(String::as_str).collect();
            let routes = found.iter().flat_map(|plugin| plugin.routes.clone()).collect();
            let mut findings = of_plugins(&dir.to_string(), &found, &sections);
            let stray = |what: String| Finding::warning("plugins", what, format!("rename it, or delete it from {dir}"));
            findings.extend(plugins::strays(&config.plugins.dir).into_iter().map(stray));
            let beside =
                found.iter().filter_map(|plugin| Some((plugin.name.clone(), plugins::manifest(&plugin.name, config)?)));
            let manifests = manifests.into_iter().chain(beside).collect();
            findings.extend(absent(&dir.to_string(), &config.plugins.required, &found));
            let none_here = found.is_empty();
            let failed = found.into_iter().filter(|plugin| plugin.state == PluginState::Failed).map(with_digest).collect();
            Plugins { findings, routes, manifests, none_here, failed }
        }
    }
}

/// With the digest of its file, which is not told where its manifest is why it does not load.
fn with_digest(plugin: PluginStatus) -> PluginStatus {
    let of_file = || plugins::anatomy(&plugin.file).ok().map(|file| file.digest);
    let digest = plugin.digest.clone().or_else(of_file);
    PluginStatus { digest, ..plugin }
}

/// Plugins without which a host is not ready, and which are not there at all.
fn absent(dir: &str, required: &BTreeSet<String>, found: &[PluginStatus]) -> Vec<Finding> {
    let is_absent = |name: &&String| !found.iter().any(|plugin| plugin.name == **name);
    let finding = |name: &String| {
        let what = format!("plugins.required names {name}, but {dir} holds no {name}.wasm, so a host does not become ready");
        let fix = format!("copy the component to {dir}/{name}.wasm, or remove {name} from plugins.required");
        Finding::fault("plugins", what, fix)
    };
    required.iter().filter(is_absent).map(finding).collect()
}

pub(super) fn of_plugins(dir: &str, found: &[PluginStatus], sections: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if found.is_empty() {
        let is_empty = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        let holds = if is_empty { "is empty" } else { "holds no plugins" };
        let what = format!("the directory {dir} {holds}, so no plugin answers any route");
        findings.push(Finding::warning("plugins", what, format!("copy a component there as {dir}/NAME.wasm")));
    }
    let (bad, good): (Vec<_>, Vec<_>) =
        found.iter().partition(|plugin| !matches!(plugin.state, PluginState::Loads | PluginState::Serving));
    findings.extend(bad.into_iter().map(cannot_serve));
    for name in sections.iter().filter(|name| !found.iter().any(|plugin| plugin.name == **name)) {
        let what = format!("the configuration has a section [plugins.{name}], but {dir} holds no {name}.wasm");
        findings.push(Finding::warning(
            "plugins",
            what,
            format!("copy the component to {dir}/{name}.wasm, or delete the section"),
        ));
    }
    findings.extend(good.into_iter().map(|plugin| {
        let version = plugin.version.as_deref().unwrap_or("without a version");
        Finding::good("plugins", format!("{} {version} answers {}", plugin.name, short(&names(&plugin.routes), 100)))
    }));
    findings
}

/// A plugin whose file does not load as it is now, whether or not a version that served before still does.
pub(super) fn cannot_serve(plugin: &PluginStatus) -> Finding {
    let (name, why) = (&plugin.name, plugin.error.as_deref().unwrap_or("it could not be loaded"));
    let fix = format!("when that is fixed: outbox plugin check {}", argument(&plugin.file.to_string_lossy()));
    if plugin.state == PluginState::Failed {
        return Finding::fault("plugins", format!("{name} cannot serve: {why}"), fix);
    }
    let version =
        plugin.version.as_deref().map_or_else(|| "the previous version".to_owned(), |version| format!("version {version}"));
    let routes = short(&names(&plugin.routes), 100);
    let what = format!("{name}: its current file cannot serve: {why}; {version}, which served before, still answers {routes}");
    Finding::warning("plugins", what, fix)
}

/// The directories that running hosts load plugins from. If there are any, this directory need not have plugins.
pub(in crate::doctor) fn served_elsewhere(nodes: &[NodeRecord], dir: &Path, flags: &Flags) -> Option<Finding> {
    let live = nodes.iter().filter(|node| node.alive);
    let served = live.flat_map(outbox::node::plugins);
    let dirs: BTreeSet<String> = served.filter_map(|plugin| Some(argument(&plugin.file.parent()?.to_string_lossy()))).collect();
    let dir_there = dirs.first()?;
    let again = flags.command(&format!("outbox doctor --plugins {dir_there}"));
    let others = dirs.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let lacks = if dir.exists() { "holds no plugins" } else { "does not exist here" };
    let what = format!("{} {lacks}, but running hosts serve plugins from {others}; to check those: {again}", dir.display());
    Some(Finding::good("plugins", what))
}
