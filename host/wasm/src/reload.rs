//! The plugins of a directory, from their configuration to the task that keeps them up to date.

mod by_hand;
mod check;
mod conflicts;
pub(super) mod entry;
mod job;
mod refresh;
mod reloader;
pub(super) mod report;
mod required;
mod swap;
mod watch;

pub use self::by_hand::{LockChange, Locked, RolledBack, WherePinned, lock, retry, rollback};
pub use self::check::check_manifests;
pub use self::report::PluginReport;
pub use self::required::RequiredPlugins;
use self::required::warn_of_absent;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outbox_event::time::system_clock;
use outbox_event::units::{ByteSize, duration};
use outbox_event::{PluginState, PluginStatus};
use outbox_listener::{Health, Listeners};
use outbox_sink::Sinks;
use serde::{Deserialize, Serialize};

use self::reloader::{Reloader, ScanOf};
use self::watch::{FirstScan, ScanReason, Watch};
use super::capability::http::Network;
use super::capability::state::StateSource;
use super::directory;
use super::directory::open_dir::OpenDir;
use super::directory::pins::Rule;
use super::engine::machine::Machine;
use super::engine::{DEFAULT_MEMORY, Engine, PagemapScan};
use super::error::LoadError;
use super::load::Loader;
use super::load::compile::{Compile, CompileLimits};
use super::manifest::Manifest;
use super::manifest::references::{References, Resolve};
use super::private::Private;
use super::private::cache::Cache;
use super::private::quarantine::Quarantine;

/// Where plugins come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginsConfig {
    /// The directory of `NAME.wasm` and `NAME.toml`. Default `plugins`.
    pub dir: PathBuf,
    /// The file that pins plugins to digests; `None` for `plugins.lock` in the directory. Default `None`.
    pub lock: Option<PathBuf>,
    /// Whether only plugins that are pinned are loaded. Default false.
    pub strict: bool,
    /// The plugins without which the host is not ready, by name. Default none.
    pub required: BTreeSet<String>,
    /// Numbers of the users, beside root and this process's own, to whom the directory and its files may belong. Default none.
    pub trusted_owners: Vec<u32>,
    /// A private directory for what the host notes for its next start: compiled components, the last versions that served, and
    /// components that must not be compiled again; `None` compiles at every start. Default `None`.
    pub cache_dir: Option<PathBuf>,
    /// The most bytes of compiled components that the private directory keeps, and as many of versions that served; what
    /// serves, and the last good version of each plugin, stay in any case. Default 1 GiB.
    pub cache_max: ByteSize,
    /// What compiling one component may use, where it is compiled in a child process.
    pub compile_limits: CompileLimits,
    /// Where components are compiled. Default: in this process.
    #[serde(skip)]
    pub compile: Compile,
    /// Rest between two looks at everything, for changes that the system does not report. Default 30 s; above zero.
    #[serde(with = "duration")]
    pub rescan_interval: Duration,
    /// How long the directory must be quiet after a change. Default 250 ms.
    #[serde(with = "duration")]
    pub debounce: Duration,
    /// What all guests may have together in one host: a call that would take more waits. Of several plugins, one leaves as much
    /// free as it has, and at least a quarter, for all but one of its instances. Default 1 GiB; above zero.
    pub memory: ByteSize,
    /// Whether memory is cleaned with the kernel's help. Default `auto`.
    pub pagemap_scan: PagemapScan,
    /// What must serve before [`Plugins::start`] returns. Default `all`.
    pub ready_when: ReadyWhen,
    /// The directory whose files a manifest beside a component may refer to by `${file:NAME}`; `None` for no files. Default
    /// `None`.
    pub files_dir: Option<PathBuf>,
    /// Certificates in PEM of authorities that HTTPS requests of plugins trust beside the system's; `None` for the system's
    /// alone. Default `None`.
    pub ca_file: Option<PathBuf>,
    /// Manifests by plugin name, each in place of the `NAME.toml` beside the component. They may refer to whatever `resolve`
    /// finds; a manifest beside a component only to variables `OUTBOX_PLUGIN_…` and to the files of `files_dir`.
    pub manifests: BTreeMap<String, Manifest>,
    /// What plugins may be granted to publish to. Default none; an outbox puts its own here.
    #[serde(skip)]
    pub sinks: Sinks,
    /// Finds what `${env:NAME}` and `${file:PATH}` in a `[config]` stand for. Default: refuses.
    #[serde(skip)]
    pub resolve: Resolve,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("plugins"),
            lock: None,
            strict: false,
            required: BTreeSet::new(),
            trusted_owners: Vec::new(),
            cache_dir: None,
            cache_max: ByteSize::mib(1_024),
            compile_limits: CompileLimits::default(),
            compile: Compile::default(),
            rescan_interval: Duration::from_secs(30),
            debounce: Duration::from_millis(250),
            memory: DEFAULT_MEMORY,
            pagemap_scan: PagemapScan::default(),
            ready_when: ReadyWhen::default(),
            files_dir: None,
            ca_file: None,
            manifests: BTreeMap::new(),
            sinks: Sinks::default(),
            resolve: Resolve::default(),
        }
    }
}

/// What must serve before a host is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyWhen {
    /// Every plugin that can be loaded.
    #[default]
    All,
    /// Those that the cache has compiled; the others follow as they are compiled, and their events wait.
    Cached,
}

impl PluginsConfig {
    /// The host's private directory, where one is set and can be trusted.
    pub(super) fn private(&self) -> Option<Arc<Private>> {
        self.cache_dir.as_deref().and_then(Private::open).map(Arc::new)
    }

    /// Where plugins are pinned, and whether all must be.
    pub(super) fn rule(&self) -> Rule {
        Rule { lock: self.lock.clone(), strict: self.strict }
    }

    /// What loads components for this engine.
    pub(super) fn loader(
        &self,
        engine: Arc<Engine>,
        state: Option<Arc<dyn StateSource>>,
        private: Option<Arc<Private>>,
    ) -> Loader {
        engine.memory.set_max(self.memory.as_usize());
        Loader {
            engine,
            cache: private.clone().map(|private| Arc::new(Cache::new(private, self.cache_max))),
            references: References { resolve: self.resolve.clone(), files_dir: self.files_dir.clone() },
            state,
            network: Network::new(self.ca_file.clone()),
            sinks: Some(self.sinks.clone()),
            compile: self.compile.clone(),
            compile_limits: self.compile_limits,
            quarantine: Arc::new(Quarantine::new(private, system_clock())),
        }
    }
}

/// The plugins of a directory, serving.
#[derive(Debug)]
pub struct Plugins {
    reloader: Arc<Reloader>,
    required: Arc<BTreeSet<String>>,
    watch: Watch,
}

impl Plugins {
    /// Loads what is in the directory and keeps watching it. When this returns, everything that
    /// [`ready_when`](PluginsConfig::ready_when) asks for serves, if it can be loaded; what cannot is logged and listed. Plugins
    /// keep no state, since there is no outbox to keep it in.
    ///
    /// # Errors
    /// When the directory is missing, unreadable or writable by anybody, or this machine cannot run WebAssembly.
    pub async fn start(config: PluginsConfig, workers: usize, listeners: Arc<Listeners>) -> Result<Self, LoadError> {
        Self::start_watched(config, workers, listeners, None, &Health::default()).await
    }

    /// As [`start`](Self::start), for a host that wants to know when the watching breaks.
    #[doc(hidden)] // for the host
    pub async fn start_watched(
        config: PluginsConfig,
        workers: usize,
        listeners: Arc<Listeners>,
        state: Option<Arc<dyn StateSource>>,
        health: &Health,
    ) -> Result<Self, LoadError> {
        Self::start_on(Machine::default(), config, workers, listeners, state, health).await
    }

    pub(super) async fn start_on(
        machine: Machine,
        config: PluginsConfig,
        workers: usize,
        listeners: Arc<Listeners>,
        state: Option<Arc<dyn StateSource>>,
        health: &Health,
    ) -> Result<Self, LoadError> {
        let (interval, debounce) = (config.rescan_interval.max(Duration::from_millis(10)), config.debounce);
        let (dir, ready_when) = (config.dir.clone(), config.ready_when);
        let required = Arc::new(config.required.clone());
        let reloader = Arc::new(Reloader::new(machine, config, workers, listeners, state)?);
        // Watched before looked at, or a change between the two is lost.
        let mut watch = Watch::new(dir, interval, debounce);
        let first = match ready_when {
            ReadyWhen::All => {
                reloader.scan_to_the_end().await;
                FirstScan::AfterAChange
            }
            ReadyWhen::Cached => {
                reloader.scan(ScanOf::Compiled).await;
                FirstScan::AtOnce
            }
        };
        warn_of_absent(&required, &reloader.list());
        let (hearing, turning) = (reloader.clone(), reloader.clone());
        let on_change = move || hearing.note_change();
        watch.run(first, reloader.progress.subscribe(), health, on_change, move |reason| {
            let reloader = turning.clone();
            let scan_of = match reason {
                ScanReason::Change => ScanOf::All,
                ScanReason::Interval => ScanOf::Due,
                ScanReason::Progress => ScanOf::Waiting,
            };
            async move {
                reloader.scan(scan_of).await;
            }
        });
        Ok(Self { reloader, required, watch })
    }

    /// One turn of the crank: looks at the directory now, and returns when everything found has been dealt with.
    pub async fn rescan(&self) {
        self.reloader.scan_to_the_end().await;
    }

    /// The sandbox that plugins are loaded into.
    #[cfg(test)]
    pub(super) async fn engine(&self) -> Arc<Engine> {
        self.reloader.engine().await
    }

    /// The engine in which a plugin serves.
    #[cfg(test)]
    pub(super) async fn engine_of(&self, name: &str) -> Arc<Engine> {
        self.reloader.engine_of(name).await
    }

    /// Looks at the directory as after an interval in which nothing was seen to change.
    #[cfg(test)]
    pub(super) async fn look(&self) {
        self.reloader.scan(ScanOf::Due).await;
    }

    /// How many loads have begun.
    #[cfg(test)]
    pub(super) fn loads(&self) -> usize {
        self.reloader.loads.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// How many pairs of files have been read.
    #[cfg(test)]
    pub(super) fn reads(&self) -> usize {
        self.reloader.reads.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Which of the plugins that must serve do not, for as long as they are here.
    #[doc(hidden)] // for the host
    pub fn required(&self) -> RequiredPlugins {
        RequiredPlugins::new(&self.reloader, self.required.clone())
    }

    /// Lists the plugins by name, for as long as they are here.
    #[doc(hidden)] // for the host
    pub fn lister(&self) -> Box<dyn Fn() -> Vec<PluginStatus> + Send + Sync> {
        // The lister must not keep the plugins, or a compiler would outlive its host's stop.
        let reloader = Arc::downgrade(&self.reloader);
        Box::new(move || reloader.upgrade().map(|reloader| reloader.list()).unwrap_or_default())
    }

    /// The plugins by name.
    #[must_use]
    pub fn list(&self) -> Vec<PluginStatus> {
        self.reloader.list()
    }

    /// How many plugins are still being loaded, of which no version serves yet.
    #[doc(hidden)] // for the host
    pub fn loading(&self) -> usize {
        self.list().iter().filter(|plugin| plugin.state == PluginState::Loading).count()
    }

    /// Stops watching and loading. What serves goes on serving, so that a host can drain.
    pub async fn stop(self) {
        self.end().await;
    }

    /// As [`stop`](Self::stop), where others may hold the plugins too.
    #[doc(hidden)] // for the host
    pub async fn end(&self) {
        self.watch.stop().await;
    }
}

/// Loads the directory once, without serving anything, for a list of what is there. What is compiled stays in the cache, for
/// the host that has this many workers.
///
/// # Errors
/// Those of [`Plugins::start`].
pub async fn inspect(config: PluginsConfig, workers: usize) -> Result<Vec<PluginStatus>, LoadError> {
    let reloader = Reloader::new(Machine::default(), config, workers, Arc::default(), None)?;
    reloader.scan_to_the_end().await;
    Ok(reloader.list())
}

/// The manifest of a plugin: that of the configuration, or the one beside its component; `None` where the directory has no
/// component of this name. Blocks.
///
/// # Errors
/// When the manifest cannot be read, or is none.
pub fn manifest_of(config: &PluginsConfig, name: &str) -> Result<Option<Manifest>, LoadError> {
    if let Some(manifest) = config.manifests.get(name) {
        return Ok(Some(manifest.clone()));
    }
    let file = config.dir.join(format!("{name}.wasm"));
    // A name that stands in a database need not be one of a file.
    if name.contains(['/', '\\', '\0']) || !file.is_file() {
        return Ok(None);
    }
    let written = directory::manifest_beside(&OpenDir::open(&config.dir, None)?, &file)?;
    written.checked(&file).cloned().map(Some)
}

/// Files of a plugins directory that belong to no component, such as a misnamed manifest: a sentence for each. Blocks.
///
/// # Errors
/// When the directory cannot be read.
pub fn strays(dir: &Path) -> std::io::Result<Vec<String>> {
    let place = OpenDir::open(dir, None).map_err(std::io::Error::other)?;
    Ok(directory::strays::strays(&place)?.into_iter().map(|stray| stray.what).collect())
}
