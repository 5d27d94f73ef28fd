//! A load that goes on while scans come and go, since its component is being compiled. Dropped, it ends, and so does its compiler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::entry::{Candidate, Key};
use super::error::LoadError;
use super::load::Loaded;
use super::plugin::Plugin;

/// Which version of a plugin is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The file as it lies in the directory.
    File,
    /// The last one that served, since the file does not.
    LastGood,
}

/// A load that goes on.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) key: Key,
    pub(super) which: Which,
    pub(super) since: Instant,
    pub(super) ends: Ends,
    pub(super) task: JoinHandle<Result<Loaded, LoadError>>,
}

impl Job {
    /// What this load came to.
    pub(super) fn candidate(&self, plugin: Arc<Plugin>) -> Candidate {
        Candidate { key: self.key.clone(), plugin, which: self.which, since: self.since }
    }

    /// Whether it loads this version of this plugin's file.
    pub(super) fn is_of(&self, name: &str, key: &Key) -> bool {
        self.which == Which::File && self.name == name && self.key == *key
    }
}

/// Tells that a load has ended, however it did.
#[derive(Clone, Default)]
pub(super) struct Ends(Arc<AtomicBool>);

impl Ends {
    /// What the load holds until it ends.
    pub(super) fn guard(&self, progress: watch::Sender<u64>) -> Guard {
        Guard { ended: self.0.clone(), progress }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Held by a load.
pub(super) struct Guard {
    ended: Arc<AtomicBool>,
    progress: watch::Sender<u64>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.task.abort();
    }
}
