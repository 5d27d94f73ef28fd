//! When to look at the plugins directory: after a change, once it is quiet, and now and then in any case.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use outbox_listener::Health;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::blocking::Blocking;
use crate::directory::matters;

/// A directory that never rests is read all the same, after this many times the debounce.
const MOST_DEBOUNCES: u32 = 8;
/// How long a scan waits until the directory is watched.
const LONGEST_FOLLOW: Duration = Duration::from_secs(1);

/// When the first scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstScan {
    /// At once.
    AtOnce,
    /// After a change or an interval, like every other.
    AfterAChange,
}

/// Why a scan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanReason {
    /// Something changed, or nobody has looked yet.
    Change,
    /// Something may have changed unnoticed.
    Interval,
    /// A load has ended beside the scans.
    Progress,
}

/// Watches one directory.
#[derive(Debug)]
pub(crate) struct Watch {
    changed: Arc<Notify>,
    stopped: Arc<Notify>,
    parts: Option<Parts>,
    /// `None` before it runs and after it was waited for.
    running: Mutex<Option<JoinHandle<()>>>,
}

/// What the running task takes with it.
#[derive(Debug)]
struct Parts {
    watched: Arc<Mutex<Watched>>,
    interval: Duration,
    debounce: Duration,
}

impl Watch {
    /// Begins to watch. Without the system's help, changes are found by the interval.
    pub(crate) fn new(dir: PathBuf, interval: Duration, debounce: Duration) -> Self {
        let changed = Arc::new(Notify::new());
        let told = changed.clone();
        let own = dir.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that changes may have been missed: look.
            if event.map_or(true, |event| tells(&event, &own)) {
                told.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(|error| {
                tracing::warn!(
                    target: "outbox::wasm::reload::watch",
                    "plugins directory cannot be watched, only looked at now and then: {error}"
                )
            })
            .ok();
        let mut watched = Watched { dir, seen: None, watcher };
        watched.follow();
        Self {
            changed,
            stopped: Arc::default(),
            parts: Some(Parts { watched: Arc::new(Mutex::new(watched)), interval, debounce }),
            running: Mutex::default(),
        }
    }

    /// Calls `scan` after changes, after every interval and on progress, until stopped; a scan that runs then is dropped. Calls `on_change`
    /// at each change, before the directory is quiet.
    pub(crate) fn run<F>(
        &mut self,
        first: FirstScan,
        mut progress: watch::Receiver<u64>,
        health: &Health,
        on_change: impl Fn() + Send + Sync + 'static,
        scan: impl Fn(ScanReason) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let Some(Parts { watched, interval, debounce }) = self.parts.take() else { return };
        let (changed, stopped) = (self.changed.clone(), self.stopped.clone());
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(health.spawn("watcher of the plugins", async move {
                let mut following = Blocking::with_timeout(LONGEST_FOLLOW);
                let mut at_once = first == FirstScan::AtOnce;
                loop {
                    let next = async {
                        if std::mem::take(&mut at_once) {
                            return ScanReason::Change;
                        }
                        tokio::select! {
                            () = changed.notified() => {
                                on_change();
                                quiet(&changed, debounce).await;
                                ScanReason::Change
                            }
                            Ok(()) = progress.changed() => ScanReason::Progress,
                            () = tokio::time::sleep(interval) => ScanReason::Interval,
                        }
                    };
                    let reason = tokio::select! {
                        () = stopped.notified() => return,
                        reason = next => reason,
                    };
                    let watched = watched.clone();
                    let follow = move || watched.lock().unwrap_or_else(PoisonError::into_inner).follow();
                    tokio::select! {
                        () = stopped.notified() => return,
                        // If the directory hangs, the scan reports it. A panic is in the log, and the interval finds changes too.
                        _ = following.run(follow) => {}
                    }
                    tokio::select! {
                        () = stopped.notified() => return,
                        () = scan(reason) => {}
                    }
                }
            }));
    }

    /// Stops; does not wait for what is being compiled.
    pub(crate) async fn stop(&self) {
        self.stopped.notify_one();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            // It ends by itself; that it panicked is in the log already.
            let _ = running.await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stopped.notify_one();
    }
}

/// Waits until nothing changes any more.
async fn quiet(changed: &Notify, debounce: Duration) {
    let patience = tokio::time::Instant::now() + debounce * MOST_DEBOUNCES;
    while tokio::time::Instant::now() < patience {
        if tokio::time::timeout(debounce, changed.notified()).await.is_err() {
            return;
        }
    }
}

/// Whether an event can mean a change of a plugin. That somebody reads does not, or our own scan would lead to the next.
fn tells(event: &Event, dir: &Path) -> bool {
    let kind = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    };
    kind && (event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(|path| path == dir || matters(path)))
}

/// The directory behind the path, which may be replaced by another one.
#[derive(Debug)]
struct Watched {
    dir: PathBuf,
    seen: Option<(u64, u64)>,
    /// `None` without the system's help.
    watcher: Option<RecommendedWatcher>,
}

impl Watched {
    /// Watches the directory that the path leads to now, and its parent, where it would be put again. Blocks.
    fn follow(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let now = std::fs::metadata(&self.dir).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        if now == self.seen {
            return;
        }
        self.seen = now;
        let _ = watcher.unwatch(&self.dir);
        if let Err(error) = watcher.watch(&self.dir, RecursiveMode::NonRecursive) {
            self.seen = None;
            tracing::debug!(target: "outbox::wasm::reload::watch", dir = %self.dir.display(), "not watched: {error}");
        }
        if let Some(parent) = self.dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // A help only: the interval finds a new directory too.
            let _ = watcher.watch(parent, RecursiveMode::NonRecursive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_heard_long_before_the_directory_is_quiet() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let (long, health) = (Duration::from_secs(3_600), Health::default());
        let mut watch = Watch::new(directory.path().to_owned(), long, long);
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let on_change = move || tell.send(()).expect("the test listens");
        watch
            .run(FirstScan::AfterAChange, watch::channel(0).1, &health, on_change, |_| async { panic!("it is not quiet yet") });

        std::fs::write(directory.path().join("mailer.wasm"), "").expect("can be written");

        assert_eq!(tokio::time::timeout(Duration::from_secs(60), told.recv()).await, Ok(Some(())));
        watch.stop().await;
    }

    #[tokio::test]
    async fn a_scan_that_panics_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let soon = Duration::from_millis(1);
        let health = Health::default();
        let mut watch = Watch::new(directory.path().to_owned(), soon, soon);

        watch.run(FirstScan::AfterAChange, watch::channel(0).1, &health, || {}, |_| async { panic!("on purpose") });

        assert_eq!(tokio::time::timeout(Duration::from_secs(60), health.broken()).await, Ok("watcher of the plugins"));
        watch.stop().await;
    }
}
