//! What is known of one plugin of the directory.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox_event::text::escape;
use outbox_event::time::system_clock;
use outbox_event::{MOST_SWAPS, PluginDetails, PluginState, PluginStatus, PluginSwap, Route};
use outbox_listener::{CallTotals, Swap};
use wasmtime::component::Component;

use crate::call::PluginListener;
use crate::directory::{ManifestFile, Pair};
use crate::load::Loader;
use crate::load::plugin::Plugin;
use crate::manifest::references::WrittenIn;

/// The target of the log lines that tell why a plugin was not loaded: whoever is told by other means can leave them out.
pub(crate) const LOADS: &str = "outbox::plugin_loads";

/// The longest that a load rests that may pass, unless scans are rarer.
const LONGEST_REST: Duration = Duration::from_secs(300);

/// What is known of one file name.
pub(crate) struct Entry {
    pub(crate) file: PathBuf,
    pub(crate) serving: Option<Serving>,
    /// Loaded, and wants to serve: in this scan, or since its routes belong to somebody else.
    pub(crate) candidate: Option<Candidate>,
    pub(crate) fault: Option<Fault>,
    /// Whether the file as it is has yet to be loaded. What stands in for it is none of this.
    pub(crate) loading: bool,
    /// The files as they were last read.
    pub(crate) seen: Option<Seen>,
    /// What the files are now; `None` when they cannot be read.
    pub(crate) wanted: Option<Key>,
    /// What last failed to load, though it may load the next time.
    pub(crate) failed: Option<Key>,
    /// How often that was in a row.
    failures: u32,
    /// Until when it rests before it is tried again though nothing has changed.
    rests_until: Option<Instant>,
    /// The digests of components whose load took longer than a scan waits, and was ended since another load went on: of the file, and
    /// of its last good version.
    slow: HashMap<LoadedFrom, String>,
    /// Whether the fault is one of the compiler, which is not tried again until somebody asks.
    pub(crate) quarantined: bool,
    pub(crate) fallback: Fallback,
    /// Why the last good version did not load; logged once for each reason.
    last_good_error: Option<String>,
    /// The grant of the last good version that the manifest no longer gives; because of it that version is not loaded.
    revoked: Option<String>,
    /// Where its swaps are counted.
    pub(crate) totals: Arc<CallTotals>,
    /// Its last swaps, newest first.
    swaps: VecDeque<PluginSwap>,
}

/// A pair of files as they were read.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) pair: Pair,
    pub(crate) digest: String,
    pub(crate) written: ManifestFile,
    pub(crate) at: Instant,
}

/// Whether the last version that served may be tried where the file does not load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    MayBeTried,
    /// It failed for a reason that may pass, and rests until then.
    Rests(Instant),
    FailedForGood,
}

/// A version that answers.
pub(crate) struct Serving {
    pub(crate) key: Key,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) listeners: Vec<Arc<PluginListener>>,
}

/// A version that could answer.
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) from: LoadedFrom,
    /// When its load began.
    pub(crate) since: Instant,
}

/// Where the version that is loaded comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LoadedFrom {
    /// The file as it lies in the directory.
    File,
    /// The last one that served, since the file does not.
    LastGood,
}

/// Why the file as it is does not serve.
pub(crate) struct Fault {
    /// Not tried again while this stays the same; `None` for a fault that may pass by itself.
    key: Option<Key>,
    error: String,
    /// The words of the log if no version serves; `None` once the fault is logged.
    unlogged: Option<&'static str>,
}

/// What a plugin was made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    pub(crate) digest: String,
    /// Its text, where it stands beside the component.
    manifest: Option<String>,
    /// What its references stood for, as a digest; `None` when one stood for nothing.
    values: Option<String>,
}

impl Key {
    pub(crate) fn of(loader: &Loader, name: &str, seen: &Seen) -> Self {
        let manifest = (seen.written.written_in == WrittenIn::PluginsDir).then(|| seen.written.text.clone());
        Self { digest: seen.digest.clone(), manifest, values: loader.values(name, &seen.written) }
    }

    /// The text of the manifest beside the component; `None` when the host's own counted.
    pub(crate) fn beside(&self) -> Option<String> {
        self.manifest.clone()
    }

    /// As much of the digest as people read.
    pub(crate) fn short(&self) -> &str {
        &self.digest[..12]
    }
}

impl Entry {
    pub(crate) fn new(file: &Path, totals: Arc<CallTotals>) -> Self {
        Self {
            file: file.to_owned(),
            serving: None,
            candidate: None,
            fault: None,
            loading: false,
            seen: None,
            wanted: None,
            failed: None,
            failures: 0,
            rests_until: None,
            slow: HashMap::new(),
            quarantined: false,
            fallback: Fallback::MayBeTried,
            last_good_error: None,
            revoked: None,
            totals,
            swaps: VecDeque::new(),
        }
    }

    /// The compiled component of these bytes, if it serves.
    pub(crate) fn component(&self, digest: &str) -> Option<Component> {
        let serving = self.serving.as_ref().filter(|serving| serving.key.digest == digest)?;
        Some(serving.plugin.linked.pre.instance_pre().component().clone())
    }

    /// Whether the candidate answers less than what serves.
    pub(crate) fn gives_up_routes(&self) -> bool {
        let keeps = |route| self.candidate.as_ref().is_none_or(|candidate| candidate.plugin.routes.contains(route));
        !self.routes().iter().all(keeps)
    }

    /// What it answers now.
    pub(crate) fn routes(&self) -> &[Route] {
        self.serving.as_ref().map(|serving| &*serving.plugin.routes).unwrap_or_default()
    }

    /// Whether this version of the file waits for a route, or has failed.
    pub(crate) fn has_dealt_with(&self, key: &Key) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| candidate.key == *key)
            || self.fault.as_ref().is_some_and(|fault| fault.key.as_ref() == Some(key))
    }

    /// Takes note of a failed load. Where the fault may pass, it is tried again after a rest: `interval` at first, doubled with
    /// each failure.
    pub(crate) fn note_failed_load(&mut self, key: &Key, may_pass: bool, interval: Duration, now: Instant) {
        self.failures = if self.failed.as_ref() == Some(key) { self.failures.saturating_add(1) } else { 1 };
        self.failed = Some(key.clone());
        let rest = interval.saturating_mul(1 << (self.failures - 1).min(16)).min(LONGEST_REST.max(interval));
        self.rests_until = may_pass.then(|| now.checked_add(rest)).flatten();
    }

    /// Notes that the load of a component took longer than a scan waits, and was ended.
    pub(crate) fn note_slow_load(&mut self, from: LoadedFrom, digest: &str) {
        self.slow.insert(from, digest.to_owned());
    }

    /// Whether the last load of a component took longer than a scan waits.
    pub(crate) fn loads_slowly(&self, digest: &str) -> bool {
        self.slow.values().any(|slow| slow == digest)
    }

    /// Whether this failed to load, and rests before it is tried again.
    pub(crate) fn rests(&self, key: &Key, now: Instant) -> bool {
        self.failed.as_ref() == Some(key) && self.rests_until.is_some_and(|until| now < until)
    }

    /// Whether the last good version is to be tried, or goes on waiting for its routes.
    pub(crate) fn wants_last_good(&self, now: Instant) -> bool {
        let is_due = match self.fallback {
            Fallback::MayBeTried => true,
            Fallback::Rests(until) => until <= now,
            Fallback::FailedForGood => false,
        };
        is_due
            && self.serving.is_none()
            && self.candidate.as_ref().is_none_or(|candidate| candidate.from == LoadedFrom::LastGood)
    }

    /// The file as it is has nothing to serve; a last good version that waits for its routes goes on waiting.
    pub(crate) fn withdraw(&mut self) {
        let withdrawn = self.candidate.take_if(|candidate| candidate.from == LoadedFrom::File);
        // It waited for a route, and has to be loaded anew should it come back.
        if let (Some(_), Some(fault)) = (withdrawn, &mut self.fault) {
            fault.key = None;
        }
    }

    /// The file is again the one that serves.
    pub(crate) fn settle(&mut self) {
        (self.fault, self.candidate, self.failed, self.revoked) = (None, None, None, None);
        self.last_good_error = None;
        self.slow.clear();
        (self.loading, self.quarantined, self.fallback) = (false, false, Fallback::MayBeTried);
    }

    /// Remembers why the file does not serve.
    pub(crate) fn fail(&mut self, key: Option<Key>, error: String) {
        self.note_fault(key, error, "was not loaded, its routes have no listener");
    }

    /// Remembers that a version which loads does not serve, because another listener answers one of its routes.
    pub(crate) fn refuse(&mut self, key: Key, error: String) {
        self.note_fault(Some(key), error, "is not loaded");
    }

    fn note_fault(&mut self, key: Option<Key>, error: String, without_older: &'static str) {
        let before = self.fault.as_ref().filter(|before| before.error == error);
        let unlogged = before.map_or(Some(without_older), |before| before.unlogged);
        if before.is_none() {
            let digest = key.as_ref().map(|key| key.short().to_owned());
            self.note_swap(Swap::Failed, None, digest, Vec::new());
        }
        self.fault = Some(Fault { key, error, unlogged });
        (self.loading, self.quarantined) = (false, false);
    }

    /// Logs why the file does not serve, once for each reason. Called when it is decided which version serves instead.
    pub(crate) fn log_fault(&mut self, name: &str) {
        let Some(fault) = &mut self.fault else { return };
        let Some(without_older) = fault.unlogged.take() else { return };
        let fate = match &self.serving {
            Some(serving) => {
                format!("was not loaded, version {} ({}) serves instead", serving.plugin.version, serving.key.short())
            }
            None => without_older.to_owned(),
        };
        tracing::error!(target: LOADS, plugin = name, "plugin {} {fate}: {}", escape(name), fault.error);
    }

    /// Whether [`log_fault`](Self::log_fault) has something to log.
    pub(crate) fn has_unlogged_fault(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.unlogged.is_some())
    }

    /// Counts a change of the serving version, and keeps it for the plugin's status. `dropped` are routes that have lost their listener.
    pub(crate) fn note_swap(&mut self, swap: Swap, version: Option<String>, digest: Option<String>, dropped: Vec<Route>) {
        self.totals.swapped(swap);
        self.swaps.truncate(MOST_SWAPS - 1);
        self.swaps.push_front(PluginSwap {
            at: system_clock().now(),
            result: swap.code().to_owned(),
            version,
            digest,
            dropped,
        });
    }

    /// Remembers why the last good version does not load either; logged once for each reason.
    pub(crate) fn fail_last_good(&mut self, name: &str, error: String) {
        if self.last_good_error.as_ref() != Some(&error) {
            self.log_fault(name);
            let shown = escape(name);
            tracing::error!(
                target: LOADS,
                plugin = name,
                "the last good version of plugin {shown} could not be loaded either: {error}"
            );
        }
        self.last_good_error = Some(error);
    }

    /// Remembers which grant of the last good version was taken back, so that it stays away; logged once for each.
    pub(crate) fn note_revoked(&mut self, name: &str, revoked: Option<String>) {
        if let Some(grant) = revoked.as_deref().filter(|_| self.revoked != revoked) {
            self.log_fault(name);
            tracing::error!(
                target: "outbox::wasm::reload::entry",
                plugin = name,
                "the last good version of {name} is not loaded: its manifest no longer grants {grant}; grant it again, or repair the \
                 component"
            );
        }
        self.revoked = revoked;
    }

    /// Why the file as it is does not serve; `None` when it does.
    pub(crate) fn trouble(&self) -> Option<&str> {
        match &self.fault {
            Some(fault) => Some(&fault.error),
            None => self.loading.then_some("it is being compiled"),
        }
    }

    /// Why a new version of the file does not serve yet; `None` if no version serves, or the new one has failed.
    fn pending(&self) -> Option<&'static str> {
        if self.serving.is_none() {
            None
        } else if self.loading {
            // Before the fault, which is that of an earlier version.
            Some("the new version is being loaded")
        } else if self.fault.is_none() && self.candidate.is_some() {
            Some("the new version is loaded, and serves when no other plugin is being compiled")
        } else {
            None
        }
    }

    /// As it stands; `is_loading` tells whether one of its versions is being loaded beside the scans.
    pub(crate) fn status(&self, name: &str, is_loading: bool) -> PluginStatus {
        let plugin = self.serving.as_ref().map(|serving| &serving.plugin);
        let key = match (&self.serving, &self.candidate, &self.fault) {
            (Some(serving), ..) => Some(&serving.key),
            (None, Some(candidate), _) => Some(&candidate.key),
            (None, None, fault) => fault.as_ref().and_then(|fault| fault.key.as_ref()),
        };
        let state = match &self.serving {
            Some(serving) if self.fault.is_some() && self.wanted.as_ref() != Some(&serving.key) => PluginState::ServingOlder,
            Some(_) => PluginState::Serving,
            None if is_loading || self.loading || (self.candidate.is_some() && self.fault.is_none()) => PluginState::Loading,
            None => PluginState::Failed,
        };
        PluginStatus {
            name: name.to_owned(),
            version: plugin.map(|plugin| plugin.version.clone()),
            digest: key.map(|key| key.digest.clone()),
            state,
            routes: self.routes().to_vec(),
            more_routes: 0,
            error: self.fault.as_ref().map(|fault| fault.error.clone()),
            file: self.file.clone(),
            details: PluginDetails {
                capabilities: plugin.map(|plugin| plugin.capabilities()).unwrap_or_default(),
                limits: plugin.map(|plugin| plugin.manifest.limits.into()),
                pending: self.pending().map(str::to_owned),
                swaps: self.swaps.iter().cloned().collect(),
            },
        }
    }
}
