//! The plugins of a directory, and the task that keeps them up to date.

mod blocking;
mod by_hand;
mod conflicts;
pub(super) mod entry;
mod job;
mod manifests;
mod refresh;
mod reloader;
pub(super) mod report;
mod required;
mod swap;
mod watch;

pub use self::by_hand::{LockChange, Locked, RolledBack, WherePinned, lock, retry, rollback};
pub use self::manifests::check_manifests;
pub use self::report::PluginReport;
pub use self::required::RequiredPlugins;
use self::required::warn_of_absent;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outbox_event::{PluginState, PluginStatus};
use outbox_listener::{Health, Listeners};

use self::reloader::{Reloader, ScanOf};
use self::watch::{FirstScan, ScanReason, Watch};
use super::capability::state::StateSource;
use super::config::{PluginsConfig, ReadyWhen};
use super::directory;
use super::directory::open_dir::OpenDir;
use super::engine::machine::Machine;
use super::error::LoadError;
use super::manifest::Manifest;

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

    /// Scans the directory now, and returns when everything found is loaded or refused.
    #[doc(hidden)] // for our own tests
    pub async fn rescan(&self) {
        self.reloader.scan_to_the_end().await;
    }

    /// The sandbox that plugins are loaded into.
    #[cfg(test)]
    pub(super) async fn engine(&self) -> Arc<crate::Engine> {
        self.reloader.engine().await
    }

    /// The engine in which a plugin serves.
    #[cfg(test)]
    pub(super) async fn engine_of(&self, name: &str) -> Arc<crate::Engine> {
        self.reloader.engine_of(name).await
    }

    /// Looks at the directory as after an interval in which nothing was seen to change.
    #[cfg(test)]
    pub(super) async fn look(&self) {
        self.reloader.scan(ScanOf::Due).await;
    }

    /// Lets the directory hang until the sender is dropped.
    #[cfg(test)]
    pub(super) async fn hang(&self) -> std::sync::mpsc::Sender<()> {
        self.reloader.hang().await
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
    let open_dir = OpenDir::open(dir, None).map_err(std::io::Error::other)?;
    Ok(directory::strays::strays(&open_dir)?.into_iter().map(|stray| stray.what).collect())
}
