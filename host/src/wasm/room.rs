//! The plugins directory and the registry, kept alike: what is new loads, what changed is swapped, what is gone is unloaded.
//!
//! One scan is one turn of the crank; the watcher (`watch.rs`) and the clock only decide when it turns. A scan loads everything
//! first and then changes the table of routes once, so a route that moves from one plugin to another, or whose plugin is
//! renamed, keeps its old listener for as long as the new one is compiled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::capability::state::StateSource;
use super::claims::{self, Claim};
use super::directory::{self, ManifestFile, Pair};
use super::engine::Engine;
use super::entry::{Candidate, Entry, Key, Serving};
use super::error::LoadError;
use super::file::Bytes;
use super::load::{Loader, accepted};
use super::machine::Machine;
use super::manifest::Manifest;
use super::plugin::Plugin;
use super::reload::PluginsConfig;
use super::status::{PluginState, PluginStatus};
use super::text::escape;
use crate::chain::chain;
use crate::listener::{Listeners, Owner};
use crate::time::system_clock;

/// A kept instance that nobody came for is dropped after so long.
const IDLE: Duration = Duration::from_secs(600);
/// Rest between two looks at the size of the cache.
const SHRINK_INTERVAL: Duration = Duration::from_secs(600);

/// Which plugins a scan loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Those that the cache has compiled; the others are left for the next scan.
    Compiled,
    /// All.
    All,
}

/// Everything that a scan works with.
pub(super) struct Room {
    dir: PathBuf,
    manifests: BTreeMap<String, Manifest>,
    listeners: Arc<Listeners>,
    /// Held during a scan: one at a time.
    state: tokio::sync::Mutex<State>,
    shown: Mutex<Vec<PluginStatus>>,
}

struct State {
    loader: Loader,
    plugins: BTreeMap<String, Entry>,
    /// Why the directory says nothing of the plugins: everything goes on serving.
    away: Option<String>,
    /// When the cache was last made smaller.
    shrunk: Option<Instant>,
    /// Whether it was told that plugins could not be moved to an engine that does not leak.
    stuck: bool,
}

/// The files of the directory by plugin name, and what each pair of them looked like.
type Files = BTreeMap<String, (PathBuf, Pair)>;

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Room {
    pub(super) fn new(
        machine: Machine,
        config: PluginsConfig,
        workers: usize,
        listeners: Arc<Listeners>,
        state: Option<Arc<dyn StateSource>>,
    ) -> Result<Self, LoadError> {
        directory::check(&config.dir)?;
        let loader = config.loader(Engine::on(machine, workers, config.pagemap_scan)?, state);
        let state = State { loader, plugins: BTreeMap::new(), away: None, shrunk: None, stuck: false };
        Ok(Self {
            dir: config.dir,
            manifests: config.manifests,
            listeners,
            state: tokio::sync::Mutex::new(state),
            shown: Mutex::default(),
        })
    }

    pub(super) fn list(&self) -> Vec<PluginStatus> {
        let now = Instant::now();
        let mut list = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for status in &mut list {
            let owner = Owner::from(&*status.name);
            let paused = |found: Arc<crate::listener::RegistryEntry>| found.owner == owner && found.breaker.is_open(now);
            if status.routes.iter().filter_map(|route| self.listeners.find(route)).any(paused) {
                status.state = PluginState::Paused;
            }
        }
        list
    }

    #[cfg(test)]
    pub(super) async fn engine(&self) -> Arc<Engine> {
        self.state.lock().await.loader.engine.clone()
    }

    /// Looks at the directory and does what follows. Dropped at any await, it has changed nothing that serves.
    pub(super) async fn scan(&self, take: Take) {
        let state = &mut *self.state.lock().await;
        self.leave_leaking_engine(state);
        match self.look().await.and_then(|found| self.not_emptied(&state.plugins, found)) {
            Ok(found) => {
                state.away = None;
                let complete = self.load(state, &found, take).await;
                self.swap(&mut state.plugins, |name| complete && !found.contains_key(name));
            }
            Err(reason) => {
                if state.away.as_ref() != Some(&reason) {
                    tracing::error!(dir = %self.dir.display(), "{reason}; what serves goes on");
                    state.away = Some(reason);
                }
            }
        }
        for serving in state.plugins.values().filter_map(|entry| entry.serving.as_ref()) {
            serving.listeners.iter().for_each(|listener| listener.sweep(IDLE));
        }
        self.shrink_cache(state);
        self.show(state);
    }

    /// Makes the cache smaller at the start and now and then, beside everything else.
    fn shrink_cache(&self, state: &mut State) {
        let Some(cache) = state.loader.cache.clone() else { return };
        if state.shrunk.is_some_and(|at| at.elapsed() < SHRINK_INTERVAL) {
            return;
        }
        state.shrunk = Some(Instant::now());
        let serving = state.plugins.values().filter_map(|entry| entry.serving.as_ref());
        let serving = serving.map(|serving| serving.key.digest.clone()).collect();
        tokio::task::spawn_blocking(move || cache.shrink(&serving, system_clock().now()));
    }

    /// What lies in the directory, once it has settled.
    async fn look(&self) -> Result<Files, String> {
        let dir = self.dir.clone();
        let looking = tokio::task::spawn_blocking(move || {
            let files = directory::list(&dir)?;
            let mut pairs = directory::settle(&files);
            let mut pair = |name: String, file: PathBuf| pairs.remove(&name).map(|pair| (name, (file, pair)));
            std::io::Result::Ok(files.into_iter().filter_map(|(name, file)| pair(name, file)).collect())
        });
        let looked = looking.await.map_err(|panic| format!("looking at the plugins directory gave up: {panic}"))?;
        looked.map_err(|error| format!("the plugins directory {} cannot be read: {error}", self.dir.display()))
    }

    /// A directory that has lost every plugin at once was more likely unmounted, or is being replaced, than emptied.
    fn not_emptied(&self, plugins: &BTreeMap<String, Entry>, found: Files) -> Result<Files, String> {
        let serving = plugins.values().filter(|entry| entry.serving.is_some()).count();
        if serving == 0 || !found.is_empty() {
            return Ok(found);
        }
        Err(format!(
            "the plugins directory {} holds no plugins any more, though {serving} from it serve: is its volume mounted? To unload \
             the last plugins, restart the host",
            self.dir.display()
        ))
    }

    /// Loads what is new. False when a file is being written just now: what seems to be gone may be on its way.
    async fn load(&self, state: &mut State, found: &Files, take: Take) -> bool {
        let mut complete = true;
        for (name, (file, pair)) in found {
            state.plugins.entry(name.clone()).or_insert_with(|| Entry::new(file));
            if let Err(error) = self.refresh(state, name, file, pair, take).await {
                complete &= !matches!(error, LoadError::Changing { .. });
                let entry = entry(state, name);
                entry.candidate = None;
                entry.fail(name, None, chain(&error));
            }
        }
        complete
    }

    /// Brings one plugin up to its files, but for serving it. The error is one of reading them.
    async fn refresh(&self, state: &mut State, name: &str, file: &Path, pair: &Pair, take: Take) -> Result<(), LoadError> {
        let (bytes, written) = self.read(name, file, pair).await?;
        let key = Key { digest: bytes.digest.clone(), manifest: written.text.clone() };
        let entry = entry(state, name);
        if entry.serving.as_ref().is_some_and(|serving| serving.key == key) {
            entry.settle();
            return Ok(());
        }
        if entry.has_dealt_with(&key) {
            return Ok(());
        }
        (entry.candidate, entry.loading) = (None, true);
        self.show(state);
        // What is wrong with the manifest is told at once: it takes no compiler.
        if take == Take::Compiled && accepted(name, &bytes, &written).is_ok() && !state.loader.is_compiled(&key.digest) {
            return Ok(());
        }
        let since = Instant::now();
        let loaded = state.loader.load(name, Arc::new(bytes), written).await;
        let entry = self::entry(state, name);
        entry.loading = false;
        match loaded {
            Ok(loaded) => {
                entry.fault = None;
                entry.candidate = Some(Candidate { key, plugin: loaded.plugin, since });
            }
            Err(error) => entry.fail(name, (!error.may_pass()).then_some(key), chain(&error)),
        }
        Ok(())
    }

    /// The file's bytes and the manifest that counts, read off the runtime's threads.
    async fn read(&self, name: &str, file: &Path, pair: &Pair) -> Result<(Bytes, ManifestFile), LoadError> {
        let (dir, file, pair) = (self.dir.clone(), file.to_owned(), pair.clone());
        let given = self.manifests.get(name).cloned();
        let reading = tokio::task::spawn_blocking(move || directory::read(&dir, &file, given, &pair));
        reading.await.unwrap_or_else(|panic| {
            Err(LoadError::Directory { dir: self.dir.clone(), reason: format!("reading {name} gave up: {panic}") })
        })
    }

    /// Gives every candidate its routes, or none of them, and takes away those of what is gone: one change of the table.
    fn swap(&self, plugins: &mut BTreeMap<String, Entry>, is_gone: impl Fn(&str) -> bool) {
        let refused = self.refused(plugins, &is_gone);
        let (mut changes, mut new_listeners) = (Vec::new(), BTreeMap::new());
        for (name, entry) in &*plugins {
            if is_gone(name) {
                changes.extend(entry.serving.as_ref().map(|_| (Owner::from(&**name), Vec::new())));
            } else if let Some(candidate) = entry.candidate.as_ref().filter(|_| !refused.contains_key(name)) {
                let (listeners, registrations) = candidate.plugin.registrations();
                changes.push((Owner::from(&**name), registrations));
                new_listeners.insert(name.clone(), listeners);
            }
        }
        if !changes.is_empty()
            && let Err(conflict) = self.listeners.replace_all(changes)
        {
            tracing::warn!("plugins are swapped with the next scan, since the application took a route meanwhile: {conflict}");
            return;
        }
        plugins.retain(|name, entry| {
            let gone = is_gone(name);
            if let Some(serving) = entry.serving.as_ref().filter(|_| gone) {
                unloaded(name, serving);
            }
            !gone
        });
        for (name, entry) in plugins {
            if let Some(listeners) = new_listeners.remove(name) {
                serve(name, entry, listeners);
            } else if let (Some(conflict), Some(candidate)) = (refused.get(name), &entry.candidate) {
                let key = candidate.key.clone();
                let error = LoadError::Conflict { file: entry.file.clone(), source: conflict.clone() };
                entry.fail(name, Some(key), chain(&error));
            }
        }
    }

    fn refused(
        &self,
        plugins: &BTreeMap<String, Entry>,
        is_gone: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, crate::listener::RouteConflict> {
        let staying = plugins.iter().filter(|(name, _)| !is_gone(name));
        let claims = staying.map(|(name, entry)| {
            let wanted = entry.candidate.as_ref().map(|candidate| &*candidate.plugin.routes);
            (name.as_str(), Claim { now: entry.routes(), wanted })
        });
        let is_ours = |owner: &Owner| matches!(owner, Owner::Plugin(name) if plugins.contains_key(&**name));
        let foreign = |route: &_| self.listeners.find(route).map(|found| found.owner.clone()).filter(|owner| !is_ours(owner));
        claims::refused(&claims.collect(), foreign)
    }

    /// Moves everything that serves to an engine that cleans its memory without the kernel's help, once that cannot be trusted
    /// any more. Events in flight end where they began.
    fn leave_leaking_engine(&self, state: &mut State) {
        let Some(why) = state.loader.engine.leaks() else { return };
        match self.move_all(state) {
            Ok(()) => {
                tracing::warn!("plugins: memory is cleaned without the kernel's help from now on, at half the speed: {why}")
            }
            Err(error) => {
                if !std::mem::replace(&mut state.stuck, true) {
                    tracing::error!(
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
            let (listeners, registrations) = plugin.registrations();
            changes.push((Owner::from(&**name), registrations));
            serving.insert(name.clone(), Serving { key: before.key.clone(), plugin, listeners });
        }
        if !changes.is_empty() {
            self.listeners.replace_all(changes).expect("each keeps its routes");
        }
        for (name, entry) in &mut state.plugins {
            entry.serving = serving.remove(name);
            // Loaded again, for the other engine, by the scan that is about to begin.
            if entry.candidate.take().is_some() {
                entry.fault = None;
            }
        }
        state.loader.engine = engine;
        Ok(())
    }

    /// Tells of the plugins as they stand, and whether events of unknown routes may be theirs.
    fn show(&self, state: &State) {
        let mut list: Vec<PluginStatus> = state.plugins.iter().map(|(name, entry)| entry.status(name)).collect();
        if let Some(away) = &state.away {
            list.iter_mut().for_each(|status| status.error = Some(away.clone()));
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = list;
        self.listeners.set_incomplete(incomplete(state));
    }
}

fn entry<'a>(state: &'a mut State, name: &str) -> &'a mut Entry {
    state.plugins.get_mut(name).expect("made before it is loaded")
}

/// Why routes may be missing: nobody knows what a plugin answers before it has been loaded.
fn incomplete(state: &State) -> Option<String> {
    let trouble = |(name, entry): (&String, &Entry)| {
        let why = entry.trouble()?;
        Some(format!("the plugin {} does not serve as it lies in the directory: {why}", escape(name)))
    };
    state.away.clone().or_else(|| state.plugins.iter().find_map(trouble))
}

/// Notes and logs that the candidate serves.
fn serve(name: &str, entry: &mut Entry, listeners: Vec<Arc<super::call::PluginListener>>) {
    let Some(Candidate { key, plugin, since }) = entry.candidate.take() else { return };
    let before = entry.serving.as_ref().map(|serving| serving.key.short().to_owned());
    let (digest, version, routes) = (key.short(), plugin.version.as_str(), listed(&plugin));
    let duration_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    match before {
        Some(before) => tracing::info!(
            plugin = name,
            version,
            digest,
            before,
            routes,
            duration_ms,
            "plugin {name} swapped: {before} → {digest}, answering {routes}"
        ),
        None => tracing::info!(
            plugin = name,
            version,
            digest,
            routes,
            duration_ms,
            "plugin {name} loaded: {digest}, answering {routes}"
        ),
    }
    entry.serving = Some(Serving { key, plugin, listeners });
    entry.settle();
}

fn unloaded(name: &str, serving: &Serving) {
    tracing::info!(
        plugin = name,
        digest = serving.key.short(),
        routes = listed(&serving.plugin),
        "plugin {name} unloaded, since its file is gone: events of its routes wait"
    );
}

fn listed(plugin: &Plugin) -> String {
    plugin.routes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
