//! The half of a scan that serves: what is loaded gets its routes, in one change of the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use outbox_event::chain::chain;
use outbox_event::text::escape;
use outbox_event::time::system_clock;
use outbox_event::{Owner, Route};
use outbox_listener::{RouteConflict, Swap};

use super::conflicts::{self, RouteChange};
use super::entry::{Candidate, Entry, LoadedFrom, Serving};
use super::reloader::{Reloader, State};
use crate::call::PluginListener;
use crate::error::LoadError;
use crate::load::plugin::Plugin;
use crate::private::last_good::Version;

impl Reloader {
    /// Gives every candidate its routes, or none of them, and takes away those of what is gone: one change of the table. Before
    /// everything has `settled`, nothing is taken away: what is being compiled may want it.
    pub(crate) fn swap(&self, plugins: &mut BTreeMap<String, Entry>, settled: bool, is_missing: impl Fn(&str) -> bool) {
        let is_gone = |name: &str| settled && is_missing(name);
        if !settled && plugins.values().any(Entry::gives_up_routes) {
            // Whoever wants such a route waits too, and is not told of a conflict that passes.
            tracing::debug!(
                target: "outbox::wasm::reload::swap",
                "plugins that give up routes are swapped when nothing is being compiled"
            );
        }
        // One whose file is gone does not begin to serve, even where it is not yet unloaded.
        let ready =
            |name: &str, entry: &Entry| entry.candidate.is_some() && !is_missing(name) && (settled || !entry.gives_up_routes());
        let conflicts = self.conflicts(plugins, is_gone, ready);
        let (mut changes, mut new_listeners) = (Vec::new(), BTreeMap::new());
        let mut given_up = Vec::new();
        for (name, entry) in &*plugins {
            if is_gone(name) {
                given_up.extend(entry.serving.iter().flat_map(|serving| unloaded_routes(name, serving)));
                changes.extend(entry.serving.as_ref().map(|_| (Owner::from(&**name), Vec::new())));
            } else if let Some(candidate) =
                entry.candidate.as_ref().filter(|_| ready(name, entry) && !conflicts.contains_key(name))
            {
                given_up.extend(entry.serving.iter().flat_map(|serving| dropped_routes(name, serving, candidate)));
                let (listeners, registrations) = PluginListener::of(&candidate.plugin);
                changes.push((Owner::from(&**name), registrations));
                new_listeners.insert(name.clone(), listeners);
            }
        }
        // Before the change: an event that meets no listener is parked with the reason.
        self.listeners.note_given_up(given_up);
        if !changes.is_empty()
            && let Err(conflict) = self.listeners.replace_all(changes)
        {
            tracing::warn!(
                target: "outbox::wasm::reload::swap",
                "plugins are swapped with the next scan, since the application took a route meanwhile: {conflict}"
            );
            return;
        }
        plugins.retain(|name, entry| {
            let gone = is_gone(name);
            if let Some(serving) = entry.serving.as_ref().filter(|_| gone) {
                unloaded(name, serving);
                entry.totals.swapped(Swap::Unloaded);
            }
            if gone {
                self.forget(name);
            }
            !gone
        });
        for (name, entry) in plugins {
            if let Some(listeners) = new_listeners.remove(name) {
                self.serve(name, entry, listeners);
            } else if let (Some(conflict), Some(candidate), true) = (conflicts.get(name), &entry.candidate, settled) {
                let (from, key) = (candidate.from, candidate.key.clone());
                let error = LoadError::Conflict { file: entry.file.clone(), conflict: conflict.clone() };
                match from {
                    LoadedFrom::File => entry.refuse(key, chain(&error)),
                    LoadedFrom::LastGood => entry.fail_last_good(name, chain(&error)),
                }
            }
        }
    }

    fn conflicts(
        &self,
        plugins: &BTreeMap<String, Entry>,
        is_gone: impl Fn(&str) -> bool,
        ready: impl Fn(&str, &Entry) -> bool,
    ) -> BTreeMap<String, RouteConflict> {
        let staying = plugins.iter().filter(|(name, _)| !is_gone(name));
        let changes = staying.map(|(name, entry)| {
            let wanted = entry.candidate.as_ref().filter(|_| ready(name, entry)).map(|candidate| &*candidate.plugin.routes);
            (name.as_str(), RouteChange { now: entry.routes(), wanted })
        });
        let is_ours = |owner: &Owner| matches!(owner, Owner::Plugin(name) if plugins.contains_key(&**name));
        let foreign =
            |route: &_| self.listeners.registered(route).map(|found| found.owner.clone()).filter(|owner| !is_ours(owner));
        conflicts::conflicts(&changes.collect(), foreign)
    }

    /// Forgets the versions of a plugin whose file was removed.
    fn forget(&self, name: &str) {
        let Some(good) = self.last_good.clone() else { return };
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || good.forget(&name));
    }

    /// Notes and logs that the candidate serves.
    fn serve(&self, name: &str, entry: &mut Entry, listeners: Vec<Arc<PluginListener>>) {
        let Some(candidate) = entry.candidate.take() else { return };
        let before = entry.serving.as_ref().map(|serving| serving.key.short().to_owned());
        // The line on the file's fault says so too.
        if candidate.from == LoadedFrom::File || !entry.has_unlogged_fault() {
            log_serving(name, &candidate, before.as_deref());
        }
        let is_unanswered = |route: &&Route| !candidate.plugin.routes.contains(route) && self.listeners.find(route).is_none();
        let dropped: Vec<Route> = entry.routes().iter().filter(is_unanswered).cloned().collect();
        if !dropped.is_empty() {
            tracing::warn!(
                target: "outbox::wasm::reload::swap",
                plugin = name,
                version = candidate.plugin.version.as_str(),
                routes = dropped.len(),
                "no plugin answers {} any more; their events wait",
                listed(&dropped)
            );
        }
        let swap = match (candidate.from, &before) {
            (LoadedFrom::LastGood, _) => Swap::LastGood,
            (LoadedFrom::File, None) => Swap::Loaded,
            (LoadedFrom::File, Some(_)) => Swap::Swapped,
        };
        let (version, digest) = (candidate.plugin.version.clone(), candidate.key.short().to_owned());
        entry.note_swap(swap, Some(version), Some(digest), dropped);
        let Candidate { key, plugin, from, .. } = candidate;
        let version = Version { digest: key.digest.clone(), manifest: key.beside(), since: system_clock().now() };
        entry.serving = Some(Serving { key, plugin, listeners });
        if from == LoadedFrom::LastGood {
            return;
        }
        entry.settle();
        if let Some(good) = self.last_good.clone() {
            let name = name.to_owned();
            tokio::task::spawn_blocking(move || good.note(&name, version));
        }
    }

    /// Moves everything that serves to an engine that cleans its memory without the kernel's help, once that cannot be trusted
    /// any more. Calls end on the engine that they began on.
    pub(crate) fn leave_leaking_engine(&self, state: &mut State) {
        let Some(why) = state.loader.engine.leaks() else { return };
        match self.move_all(state) {
            Ok(()) => {
                tracing::warn!(
                    target: "outbox::wasm::reload::swap",
                    "plugins: memory is cleaned without the kernel's help from now on, at half the speed: {why}"
                )
            }
            Err(error) => {
                if !std::mem::replace(&mut state.stuck, true) {
                    tracing::error!(
                        target: "outbox::wasm::reload::swap",
                        "plugins may see what others wrote, since {why} and they could not be moved to another pool: {}; restart the \
                         host, or set plugins.pagemap_scan = \"off\"",
                        chain(&error)
                    );
                }
            }
        }
    }

    fn move_all(&self, state: &mut State) -> Result<(), LoadError> {
        let engine = state.loader.engine.without_scan()?;
        let moved = |plugin: &Arc<Plugin>| plugin.moved_to(&engine).map_err(LoadError::Engine);
        let mut serving = BTreeMap::new();
        let mut changes = Vec::new();
        for (name, entry) in &state.plugins {
            let Some(before) = &entry.serving else { continue };
            let plugin = moved(&before.plugin)?;
            let (listeners, registrations) = PluginListener::of(&plugin);
            changes.push((Owner::from(&**name), registrations));
            serving.insert(name.clone(), Serving { key: before.key.clone(), plugin, listeners });
        }
        if !changes.is_empty() {
            self.listeners.replace_all(changes).expect("each keeps its routes");
        }
        // A load under way and a candidate belong to the old engine; the scan about to begin loads them again.
        state.job = None;
        for (name, entry) in &mut state.plugins {
            entry.serving = serving.remove(name);
            if entry.candidate.take().is_some_and(|candidate| candidate.from == LoadedFrom::File) {
                entry.fault = None;
            }
        }
        state.loader.engine = engine;
        Ok(())
    }
}

/// Logs that a candidate serves.
fn log_serving(name: &str, candidate: &Candidate, before: Option<&str>) {
    let (plugin, digest) = (&candidate.plugin, candidate.key.short());
    let (version, routes, answered) = (plugin.version.as_str(), plugin.routes.len(), listed(&plugin.routes));
    let duration_ms = u64::try_from(candidate.since.elapsed().as_millis()).unwrap_or(u64::MAX);
    match (before, candidate.from) {
        (_, LoadedFrom::LastGood) => tracing::warn!(
            target: "outbox::wasm::reload::swap",
            plugin = name,
            version,
            digest,
            routes,
            duration_ms,
            "plugin {name}: the last version that served, {version} ({digest}), serves until the file does; it answers {answered}"
        ),
        (Some(before), LoadedFrom::File) if before == digest => tracing::info!(
            target: "outbox::wasm::reload::swap",
            plugin = name,
            version,
            digest,
            routes,
            duration_ms,
            "plugin {name} serves with another manifest, or other settings: {digest}, answering {answered}"
        ),
        (Some(before), LoadedFrom::File) => tracing::info!(
            target: "outbox::wasm::reload::swap",
            plugin = name,
            version,
            digest,
            before,
            routes,
            duration_ms,
            "plugin {name} swapped: {before} → {digest}, answering {answered}"
        ),
        (None, LoadedFrom::File) => tracing::info!(
            target: "outbox::wasm::reload::swap",
            plugin = name,
            version,
            digest,
            routes,
            duration_ms,
            "plugin {name} loaded: {digest}, answering {answered}"
        ),
    }
}

/// The routes that a new version no longer answers, each with that reason.
fn dropped_routes(name: &str, before: &Serving, candidate: &Candidate) -> Vec<(Route, String)> {
    let (new, old) = (&candidate.plugin, &before.plugin);
    let versions = if new.version == old.version {
        [(&new.version, candidate.key.short()), (&old.version, before.key.short())]
            .map(|(version, digest)| format!("{} ({digest})", escape(version)))
    } else {
        [&new.version, &old.version].map(|version| escape(version).into_owned())
    };
    let [new_version, old_version] = versions;
    let why = format!(
        "the plugin {} {new_version} no longer answers this route, which {old_version} did, since {}",
        escape(name),
        system_clock().now()
    );
    let dropped = old.routes.iter().filter(|route| !new.routes.contains(route));
    dropped.map(|route| (route.clone(), why.clone())).collect()
}

/// The routes of a plugin whose file is gone, each with that reason.
fn unloaded_routes(name: &str, serving: &Serving) -> Vec<(Route, String)> {
    let (name, version) = (escape(name), escape(&serving.plugin.version));
    let why = format!("the plugin {name} {version}, which answered this route, was unloaded at {}", system_clock().now());
    serving.plugin.routes.iter().map(|route| (route.clone(), why.clone())).collect()
}

fn unloaded(name: &str, serving: &Serving) {
    tracing::info!(
        target: "outbox::wasm::reload::swap",
        plugin = name,
        digest = serving.key.short(),
        routes = serving.plugin.routes.len(),
        "plugin {name} unloaded, since its file is gone: events of {} wait",
        listed(&serving.plugin.routes)
    );
}

/// The first routes, and how many there are beside.
fn listed(routes: &[Route]) -> String {
    const MOST: usize = 20;
    let named = routes.iter().take(MOST).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match routes.len().saturating_sub(MOST) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_first_routes_and_counts_the_others() {
        let routes: Vec<Route> = (0..1_000).map(|number| Route::new("Order", format!("Event{number:04}")).unwrap()).collect();
        assert_eq!(listed(&routes[..2]), "Order/Event0000, Order/Event0001");
        assert!(listed(&routes[..20]).ends_with(", Order/Event0019"));
        assert!(listed(&routes).ends_with(", Order/Event0019 and 980 more"), "{}", listed(&routes));
    }
}
