//! The plugins directory and the registry, kept alike: what is new loads, what changed is swapped, what is gone is unloaded.
//!
//! One scan is one turn of the crank; the watcher (`watch.rs`) and the clock only decide when it turns. A scan first loads
//! (`refresh.rs`) and then changes the table of routes once (`swap.rs`). What must be compiled is loaded beside the scans, one
//! component at a time, and serves with a later one; until then no route is taken away, so a route that moves from one plugin to
//! another, or whose plugin is renamed, keeps its old listener.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outbox_event::text::escape;
use outbox_event::time::system_clock;
use outbox_event::units::ByteSize;
use outbox_event::{Owner, PluginState, PluginStatus};
use outbox_listener::Listeners;
use tokio::sync::watch;

use super::blocking::Blocking;
use super::entry::{Entry, LOADS};
use super::job::Job;
use crate::capability::state::StateSource;
use crate::config::PluginsConfig;
use crate::directory;
use crate::directory::open_dir::OpenDir;
use crate::directory::pins::{Pins, Rule};
use crate::directory::strays::{Stray, Told, strays};
use crate::directory::trust::Trust;
use crate::directory::{ManifestFile, Pair};
use crate::engine::Engine;
use crate::engine::machine::Machine;
use crate::error::LoadError;
use crate::load::Loader;
use crate::manifest::Manifest;
use crate::private::last_good::LastGood;

/// An unused kept instance is dropped after this long.
const IDLE: Duration = Duration::from_secs(600);
/// How long a scan waits for the directory.
const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// Rest between two looks at the size of the cache.
const SHRINK_INTERVAL: Duration = Duration::from_secs(600);

/// The plugins that a scan loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanOf {
    /// Those that the cache has compiled; the others are left for the next scan.
    Compiled,
    /// All.
    All,
    /// All but failed loads whose rest has not ended: nothing was seen to change.
    Due,
    /// Those that waited for a load that has ended; not those whose load has just failed.
    Waiting,
}

/// Everything that a scan works with.
pub(crate) struct Reloader {
    pub(crate) dir: PathBuf,
    debounce: Duration,
    cache_max: ByteSize,
    /// How often the directory is scanned though no change was seen.
    pub(crate) interval: Duration,
    pub(crate) trust: Trust,
    pub(crate) rule: Rule,
    pub(crate) manifests: BTreeMap<String, Manifest>,
    pub(crate) listeners: Arc<Listeners>,
    /// `None` without a private directory.
    pub(crate) last_good: Option<Arc<LastGood>>,
    /// Counts the loads that have ended beside the scans: each makes another scan worth while.
    pub(crate) progress: watch::Sender<u64>,
    /// How many pairs of files have been read.
    #[cfg(test)]
    pub(crate) reads: std::sync::atomic::AtomicUsize,
    /// How many loads have begun.
    #[cfg(test)]
    pub(crate) loads: std::sync::atomic::AtomicUsize,
    /// Held during a scan: one at a time.
    state: tokio::sync::Mutex<State>,
    shown: Mutex<Vec<PluginStatus>>,
}

pub(crate) struct State {
    pub(crate) loader: Loader,
    pub(crate) plugins: BTreeMap<String, Entry>,
    /// The load that goes on beside the scans.
    pub(crate) job: Option<Job>,
    /// Reads the directory.
    looking: Blocking<Result<Found, String>>,
    /// Why the directory says nothing of the plugins: everything goes on serving.
    away: Option<String>,
    /// When the cache was last made smaller.
    shrunk: Option<Instant>,
    /// Whether it was noted which plugins were removed before this host came.
    forgot: bool,
    /// Which files that belong to no component were told of.
    strays: Told,
    /// Whether it was told that plugins could not be moved to an engine that does not leak.
    pub(crate) stuck: bool,
}

/// The files of the directory.
pub(crate) struct Found {
    pub(crate) open_dir: Arc<OpenDir>,
    /// Or which file cannot be used, and why.
    pub(crate) pins: Result<Pins, (PathBuf, String)>,
    /// The files by plugin name, and what each pair of them looked like.
    pub(crate) files: BTreeMap<String, (PathBuf, Pair)>,
    /// Files that belong to no plugin.
    strays: Vec<Stray>,
}

impl Found {
    /// Refuses a plugin that is not as it is pinned.
    pub(crate) fn pinned(&self, name: &str, digest: &str, written: &ManifestFile) -> Result<(), LoadError> {
        match &self.pins {
            Ok(pins) => pins.check(name, digest, written),
            Err((file, reason)) => Err(LoadError::Lock { file: file.clone(), reason: reason.clone() }),
        }
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Reloader {
    pub(crate) fn new(
        machine: Machine,
        config: PluginsConfig,
        workers: usize,
        listeners: Arc<Listeners>,
        state: Option<Arc<dyn StateSource>>,
    ) -> Result<Self, LoadError> {
        let trust = Trust::of(&config.trusted_owners);
        let unreadable = |error| LoadError::Directory {
            dir: config.dir.clone(),
            reason: format!("{error}; check that this process's user may read it"),
        };
        OpenDir::open(&config.dir, Some(trust.clone()))?.list().map_err(unreadable)?;
        let private = config.private();
        let last_good = private.clone().map(|private| Arc::new(LastGood::new(private, &config.dir)));
        let loader = config.loader(Engine::on(machine, workers, config.pagemap_scan)?, state, private);
        let state = State {
            loader,
            plugins: BTreeMap::new(),
            job: None,
            looking: Blocking::with_timeout(LONGEST_LOOK),
            away: None,
            shrunk: None,
            forgot: false,
            strays: Told::default(),
            stuck: false,
        };
        Ok(Self {
            trust,
            rule: config.rule(),
            debounce: config.debounce,
            cache_max: config.cache_max,
            interval: config.rescan_interval,
            #[cfg(test)]
            reads: std::sync::atomic::AtomicUsize::default(),
            #[cfg(test)]
            loads: std::sync::atomic::AtomicUsize::default(),
            dir: config.dir,
            manifests: config.manifests,
            listeners,
            last_good,
            progress: watch::Sender::default(),
            state: tokio::sync::Mutex::new(state),
            shown: Mutex::default(),
        })
    }

    pub(crate) fn list(&self) -> Vec<PluginStatus> {
        let mut list = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A breaker whose pause is over waits for a trial. Its route shows that; the plugin serves the next event.
        let now = tokio::time::Instant::now();
        let pausing = self.listeners.open_breakers().into_iter().filter(|(_, _, pause)| !pause.is_over(now));
        let open: Vec<Owner> = pausing.map(|(_, owner, _)| owner).collect();
        for status in &mut list {
            if open.contains(&Owner::from(&*status.name)) {
                status.state = PluginState::BreakerOpen;
            }
        }
        list
    }

    #[cfg(test)]
    pub(crate) async fn engine(&self) -> Arc<Engine> {
        self.state.lock().await.loader.engine.clone()
    }

    #[cfg(test)]
    pub(crate) async fn engine_of(&self, name: &str) -> Arc<Engine> {
        let state = self.state.lock().await;
        state.plugins[name].serving.as_ref().expect("it serves").plugin.linked.engine.clone()
    }

    /// Lets the directory hang until the sender is dropped.
    #[cfg(test)]
    pub(crate) async fn hang(&self) -> std::sync::mpsc::Sender<()> {
        let (release, held) = std::sync::mpsc::channel();
        let state = &mut *self.state.lock().await;
        state.looking = Blocking::with_timeout(Duration::from_millis(1));
        let hanging = state.looking.run(move || Err(format!("it hung: {:?}", held.recv()))).await;
        assert!(hanging.is_none(), "it hangs");
        release
    }

    /// Scans until nothing is left to be compiled.
    pub(crate) async fn scan_to_the_end(&self) {
        let mut scan_of = ScanOf::All;
        loop {
            let mut progress = self.progress.subscribe();
            if !self.scan(scan_of).await {
                return;
            }
            scan_of = ScanOf::Waiting;
            // Its sender is in this module.
            let _ = progress.changed().await;
        }
    }

    /// Scans the directory, loads, and swaps. Returns whether a load is still running. If it is dropped at an await, each change of the route table
    /// is whole: made or not begun.
    pub(crate) async fn scan(&self, scan_of: ScanOf) -> bool {
        let state = &mut *self.state.lock().await;
        self.leave_leaking_engine(state);
        self.collect(state).await;
        match self.look(&mut state.looking).await.and_then(|found| self.not_emptied(&state.plugins, found)) {
            Ok(found) => {
                state.away = None;
                for stray in state.strays.due(&found.strays) {
                    tracing::warn!(target: LOADS, dir = %self.dir.display(), "{}", stray.what);
                }
                let complete = self.load(state, &found, scan_of).await;
                let settled = complete && state.job.is_none() && !state.plugins.values().any(|entry| entry.loading);
                self.swap(&mut state.plugins, settled, |name| !found.files.contains_key(name));
                if complete && !found.files.is_empty() && !std::mem::replace(&mut state.forgot, true) {
                    self.forget_others(&found).await;
                }
            }
            Err(reason) => {
                if state.away.as_ref() != Some(&reason) {
                    tracing::error!(
                        target: "outbox::wasm::reload::reloader",
                        dir = %self.dir.display(),
                        "{reason}; loaded plugins keep serving"
                    );
                    state.away = Some(reason);
                }
            }
        }
        for (name, entry) in &mut state.plugins {
            entry.log_fault(name);
        }
        for serving in state.plugins.values().filter_map(|entry| entry.serving.as_ref()) {
            serving.listeners.iter().for_each(|listener| listener.sweep(IDLE));
        }
        self.shrink_cache(state);
        self.show(state);
        state.job.is_some()
    }

    /// Makes the cache smaller at the start and now and then, beside everything else.
    fn shrink_cache(&self, state: &mut State) {
        let Some(cache) = state.loader.cache.clone() else { return };
        if state.shrunk.is_some_and(|at| at.elapsed() < SHRINK_INTERVAL) {
            return;
        }
        state.shrunk = Some(Instant::now());
        let serving = state.plugins.values().filter_map(|entry| entry.serving.as_ref());
        let mut wanted: BTreeSet<String> = serving.map(|serving| serving.key.digest.clone()).collect();
        let (good, max) = (self.last_good.clone(), self.cache_max);
        tokio::task::spawn_blocking(move || {
            let now = system_clock().now();
            wanted.extend(good.into_iter().flat_map(|good| good.shrink(max, now)));
            cache.shrink(&wanted, now);
        });
    }

    /// Reads what is in the directory, once it has settled. The error says why it cannot be read now.
    async fn look(&self, looking: &mut Blocking<Result<Found, String>>) -> Result<Found, String> {
        let (dir, debounce, trust, rule) = (self.dir.clone(), self.debounce, self.trust.clone(), self.rule.clone());
        let looked = looking.run(move || {
            let open_dir = OpenDir::open(&dir, Some(trust.clone())).map_err(|error| error.to_string())?;
            let files = open_dir.list();
            let files = files.map_err(|error| format!("the plugins directory {} cannot be read: {error}", dir.display()))?;
            let mut pairs = directory::settle(&open_dir, &files, debounce);
            let mut pair = |name: String, file: PathBuf| pairs.remove(&name).map(|pair| (name, (file, pair)));
            let files = files.into_iter().filter_map(|(name, file)| pair(name, file)).collect();
            let pins = rule.read(&dir, &open_dir, &trust);
            let strays = strays(&open_dir).unwrap_or_default();
            Ok(Found { open_dir: Arc::new(open_dir), pins, files, strays })
        });
        match looked.await {
            Some(Ok(looked)) => looked,
            Some(Err(panic)) => Err(format!("looking at the plugins directory gave up: {panic}")),
            None => Err(format!("the plugins directory {} does not answer: does its file server hang?", self.dir.display())),
        }
    }

    /// Forgets the plugins whose files went while no host was there to see it. Of an empty directory nobody knows whether it was
    /// emptied: its volume may not be mounted yet.
    async fn forget_others(&self, found: &Found) {
        let Some(good) = self.last_good.clone() else { return };
        let plugins: BTreeSet<String> = found.files.keys().cloned().collect();
        // A panic there is in the log, and costs nothing but disk.
        let _ = tokio::task::spawn_blocking(move || good.forget_others(&plugins)).await;
    }

    /// A directory that has lost every plugin at once was more likely unmounted, or is being replaced, than emptied.
    fn not_emptied(&self, plugins: &BTreeMap<String, Entry>, found: Found) -> Result<Found, String> {
        let serving = plugins.values().filter(|entry| entry.serving.is_some()).count();
        if serving == 0 || !found.files.is_empty() {
            return Ok(found);
        }
        Err(format!(
            "the plugins directory {} holds no plugins any more, but {serving} loaded from it {}: is its volume mounted? To \
             unload the last plugins, restart the host",
            self.dir.display(),
            if serving == 1 { "is still serving" } else { "are still serving" }
        ))
    }

    /// Until the next scan, events of unknown routes may be those of a plugin that was just put into the directory.
    pub(crate) fn note_change(&self) {
        self.listeners.set_incomplete(Some("the plugins directory has changed, and was not read since".to_owned()));
    }

    /// Tells of the plugins as they stand, and whether events of unknown routes may be theirs.
    pub(crate) fn show(&self, state: &State) {
        let is_loading = |name: &String| state.job.as_ref().is_some_and(|job| job.name == *name);
        let mut list: Vec<PluginStatus> =
            state.plugins.iter().map(|(name, entry)| entry.status(name, is_loading(name))).collect();
        if let Some(away) = &state.away {
            list.iter_mut().for_each(|status| status.error = Some(away.clone()));
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = list;
        self.listeners.set_incomplete(incomplete(state));
    }
}

/// Why routes may be missing: nobody knows what a plugin answers before it has been loaded.
fn incomplete(state: &State) -> Option<String> {
    let trouble = |(name, entry): (&String, &Entry)| {
        let why = entry.trouble()?;
        Some(format!("the plugin {} does not serve as it lies in the directory: {why}", escape(name)))
    };
    state.away.clone().or_else(|| state.plugins.iter().find_map(trouble))
}
