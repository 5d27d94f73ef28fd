//! A load that goes on while scans come and go, since its component is being compiled. Dropped, it ends, and so does its compiler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::entry::{Candidate, Key, LoadedFrom};
use crate::error::LoadError;
use crate::load::Loaded;
use crate::load::plugin::Plugin;

/// A load that goes on.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) key: Key,
    pub(crate) from: LoadedFrom,
    pub(crate) since: Instant,
    pub(crate) end: LoadEnd,
    pub(crate) task: JoinHandle<Result<Loaded, LoadError>>,
}

impl Job {
    /// What this load came to.
    pub(crate) fn candidate(&self, plugin: Arc<Plugin>) -> Candidate {
        Candidate { key: self.key.clone(), plugin, from: self.from, since: self.since }
    }

    /// Whether it loads this version of this plugin's file.
    pub(crate) fn is_of(&self, name: &str, key: &Key) -> bool {
        self.from == LoadedFrom::File && self.name == name && self.key == *key
    }
}

/// Tells that a load has ended, however it did.
#[derive(Clone, Default)]
pub(crate) struct LoadEnd(Arc<AtomicBool>);

impl LoadEnd {
    /// What the load holds until it ends.
    pub(crate) fn guard(&self, progress: watch::Sender<u64>) -> Guard {
        Guard { ended: self.0.clone(), progress }
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Held by a load.
pub(crate) struct Guard {
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
