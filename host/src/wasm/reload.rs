//! The plugins directory and the registry, kept alike: what is new loads, what changed is swapped, what is gone is unloaded.
//!
//! One scan is one turn of the crank; the watcher (`watch.rs`) and the clock only decide when it turns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::call::PluginListener;
use super::directory::{self, Written};
use super::engine::{Engine, PagemapScan};
use super::error::LoadError;
use super::file::Bytes;
use super::load::Loader;
use super::manifest::{Manifest, Resolve};
use super::plugin::Plugin;
use super::status::{PluginState, PluginStatus};
use super::watch::Watch;
use crate::chain;
use crate::health::Health;
use crate::listener::{Listeners, Owner};
use crate::units::duration;

/// A kept instance that nobody came for is dropped after so long.
const IDLE: Duration = Duration::from_secs(600);

/// Where plugins come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginsConfig {
    /// The directory of `NAME.wasm` and `NAME.toml`. Default `plugins`.
    pub dir: PathBuf,
    /// A private directory for compiled components; `None` compiles at every start. Default `None`.
    pub cache_dir: Option<PathBuf>,
    /// Rest between two looks at everything, for changes that the system does not report. Default 30 s; above zero.
    #[serde(with = "duration")]
    pub rescan_interval: Duration,
    /// How long the directory must be quiet after a change. Default 250 ms.
    #[serde(with = "duration")]
    pub debounce: Duration,
    /// Whether memory is cleaned with the kernel's help. Default `auto`.
    pub pagemap_scan: PagemapScan,
    /// Manifests by plugin name, each in place of the `NAME.toml` beside the component.
    pub manifests: BTreeMap<String, Manifest>,
    /// Finds what `${env:NAME}` and `${file:PATH}` in a `[config]` stand for. Default: refuses.
    #[serde(skip)]
    pub resolve: Resolve,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("plugins"),
            cache_dir: None,
            rescan_interval: Duration::from_secs(30),
            debounce: Duration::from_millis(250),
            pagemap_scan: PagemapScan::default(),
            manifests: BTreeMap::new(),
            resolve: Resolve::default(),
        }
    }
}

/// The plugins of a directory, serving.
#[derive(Debug)]
pub struct Plugins {
    room: Arc<Room>,
    watch: Watch,
}

impl Plugins {
    /// Loads everything in the directory and keeps watching it. When this returns, everything that can be loaded serves; what
    /// cannot is logged and listed.
    ///
    /// # Errors
    /// When the directory is missing, unreadable or writable by anybody, or this machine cannot run WebAssembly.
    pub async fn start(config: PluginsConfig, workers: usize, listeners: Arc<Listeners>) -> Result<Self, LoadError> {
        Self::start_watched(config, workers, listeners, &Health::default()).await
    }

    /// As [`start`](Self::start), for a host that wants to know when the watching breaks.
    pub(crate) async fn start_watched(
        config: PluginsConfig,
        workers: usize,
        listeners: Arc<Listeners>,
        health: &Health,
    ) -> Result<Self, LoadError> {
        let (interval, debounce) = (config.rescan_interval.max(Duration::from_millis(10)), config.debounce);
        let dir = config.dir.clone();
        let room = Arc::new(Room::new(config, workers, listeners)?);
        // Watched before looked at, or a change between the two is lost.
        let mut watch = Watch::new(dir, interval, debounce);
        room.scan().await;
        let turning = room.clone();
        watch.run(health, move || {
            let room = turning.clone();
            async move { room.scan().await }
        });
        Ok(Self { room, watch })
    }

    /// One turn of the crank: looks at the directory now, and returns when everything found has been dealt with.
    pub async fn rescan(&self) {
        self.room.scan().await;
    }

    /// The plugins by name.
    #[must_use]
    pub fn list(&self) -> Vec<PluginStatus> {
        self.room.list()
    }

    /// Stops watching. What serves goes on serving, so that a host can drain.
    pub async fn stop(self) {
        self.watch.stop().await;
    }
}

/// Loads the directory once, without serving anything, for a list of what is there.
///
/// # Errors
/// Those of [`Plugins::start`].
pub async fn inspect(config: PluginsConfig, workers: usize) -> Result<Vec<PluginStatus>, LoadError> {
    let room = Room::new(config, workers, Arc::default())?;
    room.scan().await;
    Ok(room.list())
}

/// Everything a scan works with.
struct Room {
    dir: PathBuf,
    manifests: BTreeMap<String, Manifest>,
    loader: Loader,
    listeners: Arc<Listeners>,
    /// Held during a scan: one at a time.
    entries: tokio::sync::Mutex<Entries>,
    shown: Mutex<Vec<PluginStatus>>,
}

#[derive(Default)]
struct Entries {
    plugins: BTreeMap<String, Entry>,
    unreadable: bool,
    warned_of_swap: bool,
}

/// What is known of one file name.
struct Entry {
    file: PathBuf,
    serving: Option<Serving>,
    fault: Option<Fault>,
}

struct Serving {
    key: Key,
    plugin: Arc<Plugin>,
    listeners: Vec<Arc<PluginListener>>,
}

/// Why the file as it is does not serve.
struct Fault {
    /// Not tried again while this stays the same; `None` for a fault that may pass by itself.
    key: Option<Key>,
    error: String,
    /// Loaded, but somebody else has one of its routes: tried again whenever routes change hands.
    waiting: Option<Arc<Plugin>>,
}

/// What a plugin was made from.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    digest: String,
    manifest: String,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Room {
    fn new(config: PluginsConfig, workers: usize, listeners: Arc<Listeners>) -> Result<Self, LoadError> {
        directory::check(&config.dir)?;
        let engine = Engine::new(workers, config.pagemap_scan)?;
        let cache = config.cache_dir.as_deref().and_then(Cache::open).map(Arc::new);
        Ok(Self {
            dir: config.dir,
            manifests: config.manifests,
            loader: Loader { engine, cache, resolve: config.resolve },
            listeners,
            entries: tokio::sync::Mutex::default(),
            shown: Mutex::default(),
        })
    }

    fn list(&self) -> Vec<PluginStatus> {
        let now = Instant::now();
        let mut list = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for status in &mut list {
            let owner = Owner::from(&*status.name);
            let paused = |found: Arc<crate::listener::Found>| found.owner == owner && found.breaker.is_open(now);
            if status.routes.iter().filter_map(|route| self.listeners.find(route)).any(paused) {
                status.state = PluginState::Paused;
            }
        }
        list
    }

    /// Looks at the directory and does what follows.
    async fn scan(&self) {
        let mut entries = self.entries.lock().await;
        let found = match directory::list(&self.dir) {
            Ok(found) => found,
            Err(error) => {
                // Everything goes on serving: a directory that is being replaced is not a directory without plugins.
                if !std::mem::replace(&mut entries.unreadable, true) {
                    tracing::error!(dir = %self.dir.display(), "plugins directory cannot be read; what serves goes on: {error}");
                }
                return;
            }
        };
        entries.unreadable = false;
        self.unload_missing(&mut entries.plugins, &found);
        for (name, file) in found {
            let entry = entries.plugins.entry(name.clone()).or_insert_with(|| Entry::new(&file));
            self.refresh(&name, &file, entry).await;
        }
        self.seat_waiting(&mut entries.plugins);
        self.sweep(&mut entries);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) =
            entries.plugins.iter().map(|(name, entry)| entry.status(name)).collect();
    }

    fn unload_missing(&self, plugins: &mut BTreeMap<String, Entry>, found: &BTreeMap<String, PathBuf>) {
        plugins.retain(|name, entry| {
            if found.contains_key(name) {
                return true;
            }
            if let Some(serving) = &entry.serving {
                self.listeners.remove(&**name);
                tracing::info!(
                    plugin = name.as_str(),
                    digest = &serving.key.digest[..12],
                    routes = listed(&serving.plugin),
                    "plugin {name} unloaded, since its file is gone: events of its routes wait"
                );
            }
            false
        });
    }

    /// Brings one plugin up to its file.
    async fn refresh(&self, name: &str, file: &Path, entry: &mut Entry) {
        let (bytes, written) = match self.read(name, file).await {
            Ok(read) => read,
            Err(error) => return entry.fail(name, None, chain(&error)),
        };
        let key = Key { digest: bytes.digest.clone(), manifest: written.text };
        if entry.serving.as_ref().is_some_and(|serving| serving.key == key) {
            entry.fault = None;
            return;
        }
        if entry.fault.as_ref().is_some_and(|fault| fault.key.as_ref() == Some(&key)) {
            return;
        }
        let started = Instant::now();
        let loaded = match written.manifest {
            Ok(manifest) => self.loader.load(name, Arc::new(bytes), manifest).await,
            Err(reason) => Err(LoadError::Manifest { file: file.with_extension("toml").display().to_string(), reason }),
        };
        match loaded {
            Ok(loaded) => self.seat(name, entry, loaded.plugin, key, started),
            Err(error) => entry.fail(name, (!error.may_pass()).then_some(key), chain(&error)),
        }
    }

    /// The file's bytes and the manifest that counts, read off the runtime's threads.
    async fn read(&self, name: &str, file: &Path) -> Result<(Bytes, Written), LoadError> {
        let (dir, file) = (self.dir.clone(), file.to_owned());
        let given = self.manifests.get(name).cloned();
        let reading = tokio::task::spawn_blocking(move || {
            let bytes = directory::read(&dir, &file)?;
            let written = match given {
                Some(manifest) => Written { text: String::new(), manifest: Ok(manifest) },
                None => directory::manifest_beside(&dir, &file)?,
            };
            Ok((bytes, written))
        });
        reading.await.unwrap_or_else(|panic| {
            Err(LoadError::Directory { dir: self.dir.clone(), reason: format!("reading {name} gave up: {panic}") })
        })
    }

    /// Gives a loaded plugin its routes, all or none, in one step.
    fn seat(&self, name: &str, entry: &mut Entry, plugin: Arc<Plugin>, key: Key, started: Instant) {
        let (listeners, registrations) = plugin.registrations();
        if let Err(conflict) = self.listeners.replace(name, registrations) {
            let error = LoadError::Conflict { file: entry.file.clone(), source: conflict };
            entry.fail(name, Some(key), chain(&error));
            if let Some(fault) = &mut entry.fault {
                fault.waiting = Some(plugin);
            }
            return;
        }
        let before = entry.serving.as_ref().map(|serving| serving.key.digest[..12].to_owned());
        let (digest, version, routes) = (&key.digest[..12], plugin.version.as_str(), listed(&plugin));
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
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
        entry.fault = None;
    }

    /// Tries again those whose routes somebody else had.
    fn seat_waiting(&self, plugins: &mut BTreeMap<String, Entry>) {
        for (name, entry) in plugins {
            let Some(Fault { key: Some(key), waiting: Some(plugin), .. }) = &entry.fault else { continue };
            let owner = Owner::from(&**name);
            let taken = |route| self.listeners.find(route).is_some_and(|found| found.owner != owner);
            if !plugin.routes.iter().any(taken) {
                let (key, plugin) = (key.clone(), plugin.clone());
                self.seat(name, entry, plugin, key, Instant::now());
            }
        }
    }

    fn sweep(&self, entries: &mut Entries) {
        for serving in entries.plugins.values().filter_map(|entry| entry.serving.as_ref()) {
            serving.listeners.iter().for_each(|listener| listener.sweep(IDLE));
        }
        if !entries.warned_of_swap && self.loader.engine.is_leaking() {
            entries.warned_of_swap = true;
            tracing::warn!(
                "this machine has swap now, and pages that were swapped out may show one plugin what another wrote: \
                 restart the host, or set plugins.pagemap_scan = \"off\""
            );
        }
    }
}

impl Entry {
    fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), serving: None, fault: None }
    }

    /// Remembers why the file does not serve; logged once for each reason.
    fn fail(&mut self, name: &str, key: Option<Key>, error: String) {
        if self.fault.as_ref().is_none_or(|fault| fault.error != error) {
            let fate = match &self.serving {
                Some(serving) => format!("version {} ({}) goes on serving", serving.plugin.version, &serving.key.digest[..12]),
                None => "its routes have no listener".to_owned(),
            };
            tracing::error!(plugin = name, "plugin {name} was not loaded, {fate}: {error}");
        }
        self.fault = Some(Fault { key, error, waiting: None });
    }

    fn status(&self, name: &str) -> PluginStatus {
        let plugin = self.serving.as_ref().map(|serving| &serving.plugin);
        let key = match (&self.serving, &self.fault) {
            (Some(serving), _) => Some(&serving.key),
            (None, fault) => fault.as_ref().and_then(|fault| fault.key.as_ref()),
        };
        PluginStatus {
            name: name.to_owned(),
            version: plugin.map(|plugin| plugin.version.clone()),
            digest: key.map(|key| key.digest.clone()),
            state: if plugin.is_some() { PluginState::Serving } else { PluginState::Failed },
            routes: plugin.map(|plugin| plugin.routes.clone()).unwrap_or_default(),
            error: self.fault.as_ref().map(|fault| fault.error.clone()),
            file: self.file.clone(),
        }
    }
}

fn listed(plugin: &Plugin) -> String {
    plugin.routes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
