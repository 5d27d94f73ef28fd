//! The half of a scan that loads: each plugin is brought up to its files, but for serving it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox_event::Owner;
use outbox_event::chain::chain;
use outbox_event::time::system_clock;

use super::entry::{Entry, Fallback, Key, LoadedFrom, Seen};
use super::job::{Job, LoadEnd};
use super::reloader::{Found, Reloader, ScanOf, State};
use crate::directory;
use crate::directory::file::Bytes;
use crate::directory::open_dir::OpenDir;
use crate::directory::{ManifestFile, Pair};
use crate::error::LoadError;
use crate::load::{Loaded, Parts, accepted, is_plugin_name};
use crate::manifest::references::WrittenIn;
use crate::private::last_good::Version;

/// A file is hashed again after this long even if nothing says that it changed: its stamp may lie.
const HASH_INTERVAL: Duration = Duration::from_secs(600);
/// How long a scan waits for a component that need not be compiled; then it goes on beside the scans.
const QUICK: Duration = Duration::from_secs(1);

impl Reloader {
    /// Loads what is new. False when a file is being written just now: what seems to be gone may be on its way.
    pub(crate) async fn load(&self, state: &mut State, found: &Found, scan_of: ScanOf) -> bool {
        let mut complete = true;
        for (_, entry) in state.plugins.iter_mut().filter(|(name, _)| !found.files.contains_key(*name)) {
            entry.loading = false;
        }
        if state.job.as_ref().is_some_and(|job| !found.files.contains_key(&job.name)) {
            state.job = None;
        }
        for (name, (file, pair)) in &found.files {
            state
                .plugins
                .entry(name.clone())
                .or_insert_with(|| Entry::new(file, self.listeners.totals_of(&Owner::from(&**name))));
            if let Err(error) = self.refresh(state, found, name, file, pair, scan_of).await {
                let entry = entry(state, name);
                entry.withdraw();
                entry.wanted = None;
                entry.fail(None, chain(&error));
                if matches!(error, LoadError::Changing { .. }) {
                    complete = false;
                    continue;
                }
            }
            self.fall_back(state, found, name, scan_of).await;
        }
        complete
    }

    /// Brings one plugin up to its files. The error is one of reading them.
    async fn refresh(
        &self,
        state: &mut State,
        found: &Found,
        name: &str,
        file: &Path,
        pair: &Pair,
        scan_of: ScanOf,
    ) -> Result<(), LoadError> {
        let (seen, bytes) = self.see(state, found, name, file, pair).await?;
        let key = Key::of(&state.loader, name, &seen);
        let pinned = found.pinned(name, &seen.digest, &seen.written);
        let entry = entry(state, name);
        entry.wanted = Some(key.clone());
        if let Err(error) = pinned {
            entry.withdraw();
            entry.fail(None, chain(&error));
            return Ok(());
        }
        if entry.serving.as_ref().is_some_and(|serving| serving.key == key) {
            entry.settle();
            return Ok(());
        }
        let is_left = match scan_of {
            ScanOf::Waiting => entry.failed.as_ref() == Some(&key),
            ScanOf::Due => entry.rests(&key, Instant::now()),
            ScanOf::Compiled | ScanOf::All => false,
        };
        if is_left {
            // Another version may have waited for its compiler, and is gone.
            let is_loading = state.job.as_ref().is_some_and(|job| job.name == name);
            self::entry(state, name).loading &= is_loading;
            return Ok(());
        }
        let stands_in = |job: &Job| job.from == LoadedFrom::LastGood && job.name == name;
        let has_failed = entry.failed.as_ref() == Some(&key);
        if scan_of == ScanOf::Due && has_failed && state.job.as_ref().is_some_and(stands_in) {
            // What failed before does not stop what stands in for it.
            return Ok(());
        }
        let lifted = self::entry(state, name).quarantined && state.loader.quarantined(&key.digest).is_none();
        if self::entry(state, name).has_dealt_with(&key) && !lifted {
            // Another version may have waited for its compiler.
            self::entry(state, name).loading = false;
            return Ok(());
        }
        if state.job.as_ref().is_some_and(|job| job.is_of(name, &key)) {
            return Ok(());
        }
        let entry = self::entry(state, name);
        entry.withdraw();
        // What is wrong with the manifest is told at once: it takes no compiler.
        if let Err(error) = accepted(name, file, &seen.digest, &seen.written) {
            entry.fail((!error.may_pass()).then_some(key), chain(&error));
            return Ok(());
        }
        let is_quick = is_quick(state, name, &key.digest);
        if !is_quick && (scan_of == ScanOf::Compiled || state.job.as_ref().is_some_and(|job| job.name != name)) {
            self::entry(state, name).loading = true;
            self.show(state);
            return Ok(());
        }
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => self.read(found, name, file, pair).await?.0,
        };
        self.begin(
            state,
            name,
            key,
            Parts { bytes: Arc::new(bytes), written: seen.written, component: None },
            LoadedFrom::File,
            is_quick,
        )
        .await;
        Ok(())
    }

    /// Digest and manifest of the files: from the last look when nothing touched them since, with the bytes otherwise.
    async fn see(
        &self,
        state: &mut State,
        found: &Found,
        name: &str,
        file: &Path,
        pair: &Pair,
    ) -> Result<(Seen, Option<Bytes>), LoadError> {
        let entry = entry(state, name);
        if let Some(seen) = entry.seen.as_ref().filter(|seen| seen.pair == *pair && seen.at.elapsed() < HASH_INTERVAL) {
            return Ok((seen.clone(), None));
        }
        entry.seen = None;
        let is_quiet = pair.is_quiet(system_clock().now());
        let (bytes, written) = self.read(found, name, file, pair).await?;
        let seen = Seen { pair: pair.clone(), digest: bytes.digest.clone(), written, at: Instant::now() };
        // Touched just now, it may be touched again without another stamp.
        self::entry(state, name).seen = is_quiet.then(|| seen.clone());
        Ok((seen, Some(bytes)))
    }

    /// The file's bytes and the manifest that counts, read off the runtime's threads.
    async fn read(&self, found: &Found, name: &str, file: &Path, pair: &Pair) -> Result<(Bytes, ManifestFile), LoadError> {
        #[cfg(test)]
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (open_dir, file, pair) = (found.open_dir.clone(), file.to_owned(), pair.clone());
        let given = self.manifests.get(name).cloned();
        let reading = tokio::task::spawn_blocking(move || directory::read(&open_dir, &file, given, &pair));
        reading.await.unwrap_or_else(|panic| {
            Err(LoadError::Directory { dir: self.dir.clone(), reason: format!("reading {name} gave up: {panic}") })
        })
    }

    /// Begins a load, and ends it if it is a quick one. One that takes longer goes on beside the scans if the place there is free,
    /// and is begun again when the place becomes free otherwise.
    async fn begin(&self, state: &mut State, name: &str, key: Key, mut parts: Parts, from: LoadedFrom, is_quick: bool) {
        #[cfg(test)]
        self.loads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let entry = entry(state, name);
        entry.loading |= from == LoadedFrom::File;
        parts.component = entry.component(&key.digest);
        self.show(state);
        let (loader, good, of) = (state.loader.clone(), self.last_good.clone(), name.to_owned());
        let (since, end) = (Instant::now(), LoadEnd::default());
        let guard = end.guard(self.progress.clone());
        let task = tokio::spawn(async move {
            let _guard = guard;
            let bytes = parts.bytes.clone();
            let loaded = loader.load_parts(&of, parts).await;
            if let (Ok(_), Some(good), LoadedFrom::File) = (&loaded, good, from) {
                let kept = tokio::task::spawn_blocking(move || good.keep(&bytes.digest, &bytes.bytes));
                // A panic there is in the log, and costs a fallback at most.
                let _ = kept.await;
            }
            loaded
        });
        let mut job = Job { name: name.to_owned(), key, from, since, end, task };
        let is_free = state.job.as_ref().is_none_or(|other| from == LoadedFrom::File && other.name == name);
        if is_quick && let Ok(ended) = tokio::time::timeout(QUICK, &mut job.task).await {
            self.ended(state, &job, ended);
        } else if is_free {
            state.job = Some(job);
        } else {
            self::entry(state, name).note_slow_load(from, &job.key.digest);
        }
    }

    /// Takes what the load beside the scans came to, if it has ended.
    pub(crate) async fn collect(&self, state: &mut State) {
        if let Some(mut job) = state.job.take_if(|job| job.end.has_come()) {
            let ended = (&mut job.task).await;
            if state.plugins.contains_key(&job.name) {
                self.ended(state, &job, ended);
            }
        }
    }

    /// Notes what a load came to.
    fn ended(&self, state: &mut State, job: &Job, ended: Result<Result<Loaded, LoadError>, tokio::task::JoinError>) {
        let entry = entry(state, &job.name);
        let loaded = ended.unwrap_or_else(|panic| {
            Err(LoadError::Compile { file: entry.file.clone(), reason: format!("the load gave up ({panic})") })
        });
        if job.from == LoadedFrom::File {
            entry.loading = false;
        }
        if job.from == LoadedFrom::File && entry.wanted.as_ref() != Some(&job.key) {
            // The file has changed since: what it was must not begin to serve.
            return;
        }
        match (loaded, job.from) {
            (Ok(loaded), LoadedFrom::File) => {
                entry.fault = None;
                entry.candidate = Some(job.candidate(loaded.plugin));
            }
            (Ok(loaded), LoadedFrom::LastGood) if entry.serving.is_none() && entry.candidate.is_none() => {
                entry.candidate = Some(job.candidate(loaded.plugin));
            }
            (Ok(_), LoadedFrom::LastGood) => {}
            (Err(error), LoadedFrom::File) => {
                entry.note_failed_load(&job.key, error.may_pass(), self.interval, Instant::now());
                entry.fail((!error.may_pass()).then(|| job.key.clone()), chain(&error));
                entry.quarantined = matches!(error, LoadError::Stopped { .. } | LoadError::Quarantined { .. });
            }
            (Err(error), LoadedFrom::LastGood) => {
                let until = Instant::now().checked_add(self.interval).filter(|_| error.may_pass());
                entry.fallback = until.map_or(Fallback::FailedForGood, Fallback::Rests);
                entry.fail_last_good(&job.name, chain(&error));
            }
        }
    }

    /// While nothing serves and the file does not load, the last version that served is tried, and tried again as long as its
    /// failure may pass. One that had more rights than the manifest gives that lies there now stays away: whoever took them back
    /// did so for every version. A manifest that cannot be read takes nothing back, as it does not while a host runs.
    async fn fall_back(&self, state: &mut State, found: &Found, name: &str, scan_of: ScanOf) {
        // No version of it has ever served, and the file system may refuse the name of its notes.
        if !is_plugin_name(name) {
            return;
        }
        let is_under_way = state.job.as_ref().is_some_and(|job| job.from == LoadedFrom::LastGood && job.name == name);
        let entry = entry(state, name);
        let Some(good) = self.last_good.clone().filter(|_| !is_under_way && entry.wants_last_good(Instant::now())) else {
            return;
        };
        let (given, of, file) = (self.manifests.get(name).cloned(), name.to_owned(), entry.file.clone());
        let (open_dir, versions) = (found.open_dir.clone(), good.clone());
        let finding = tokio::task::spawn_blocking(move || {
            let version = versions.versions(&of).into_iter().next()?;
            let written = last_manifest(&version, given);
            let revoked = if written.written_in == WrittenIn::PluginsDir { revoked(&open_dir, &file, &written) } else { None };
            Some((version.digest, written, revoked))
        });
        // Nothing to fall back on is the usual case, and no fault.
        let Ok(Some((digest, written, revoked))) = finding.await else { return };
        let entry = self::entry(state, name);
        let is_allowed = revoked.is_none() && found.pinned(name, &digest, &written).is_ok();
        entry.note_revoked(name, revoked);
        if !is_allowed {
            entry.candidate = None;
        }
        if !is_allowed || entry.candidate.is_some() {
            return;
        }
        let file = entry.file.clone();
        let is_quick = is_quick(state, name, &digest);
        if !is_quick && (scan_of == ScanOf::Compiled || state.job.is_some()) {
            return;
        }
        let reading = tokio::task::spawn_blocking(move || Some(Bytes::of(&file, good.bytes(&digest)?)));
        let Ok(Some(bytes)) = reading.await else { return };
        let seen = Seen { pair: Pair::default(), digest: bytes.digest.clone(), written, at: Instant::now() };
        let key = Key::of(&state.loader, name, &seen);
        let parts = Parts { bytes: Arc::new(bytes), written: seen.written, component: None };
        self.begin(state, name, key, parts, LoadedFrom::LastGood, is_quick).await;
    }
}

/// Whether a scan can wait for the load: its component is compiled, and its last load did not take too long.
fn is_quick(state: &State, name: &str, digest: &str) -> bool {
    let entry = &state.plugins[name];
    let is_compiled = state.loader.is_quick(digest) || entry.component(digest).is_some();
    is_compiled && !entry.loads_slowly(digest)
}

/// What a version was granted that the manifest beside the component does not grant now.
fn revoked(open_dir: &OpenDir, file: &Path, written: &ManifestFile) -> Option<String> {
    let now = directory::manifest_beside(open_dir, file).ok()?.manifest.ok()?;
    written.manifest.as_ref().ok()?.revoked_by(&now)
}

fn last_manifest(version: &Version, given: Option<crate::Manifest>) -> ManifestFile {
    match (given, &version.manifest) {
        (Some(manifest), _) => ManifestFile::from_config(manifest),
        (None, text) => ManifestFile::noted(text.clone().unwrap_or_default()),
    }
}

fn entry<'a>(state: &'a mut State, name: &str) -> &'a mut Entry {
    state.plugins.get_mut(name).expect("made before it is loaded")
}
