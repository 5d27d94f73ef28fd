//! The bytes of cold events in this process's hands, from the read until the outcome is handed on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// What is in hand for so long, or twice as long, counts no more: a slow listener takes no room from others.
const SLOW: Duration = Duration::from_secs(1);

/// How many bytes they have together, and who is told when some are let go.
#[derive(Debug)]
pub(super) struct Held {
    latest: Mutex<Latest>,
    /// Few enough for more to be taken.
    few: usize,
    let_go: Arc<Notify>,
}

/// The bytes of what was taken in the present span and in the one before.
#[derive(Debug)]
struct Latest {
    began_at: Instant,
    now: Arc<AtomicUsize>,
    before: Arc<AtomicUsize>,
}

impl Held {
    /// Whoever waits for `let_go` is told when there are few again.
    pub(super) fn new(few: usize, let_go: Arc<Notify>) -> Arc<Self> {
        let latest = Latest { began_at: Instant::now(), now: none(), before: none() };
        Arc::new(Self { latest: Mutex::new(latest), few, let_go })
    }

    pub(super) fn are_few(&self) -> bool {
        self.bytes() <= self.few
    }

    pub(super) fn bytes(&self) -> usize {
        let latest = self.latest();
        latest.now.load(Ordering::SeqCst) + latest.before.load(Ordering::SeqCst)
    }

    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        let counted = self.latest().now.clone();
        counted.fetch_add(bytes, Ordering::SeqCst);
        HeldBytes { held: self.clone(), counted, bytes }
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, passed) = (Instant::now(), latest.began_at.elapsed());
        if passed >= SLOW {
            let last = std::mem::replace(&mut latest.now, none());
            latest.before = if passed >= 2 * SLOW { none() } else { last };
            latest.began_at = now;
        }
        latest
    }
}

fn none() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// Counts the bytes of one event until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    held: Arc<Held>,
    counted: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.bytes, Ordering::SeqCst);
        let left = self.held.bytes();
        if left <= self.held.few && left + self.bytes > self.held.few {
            self.held.let_go.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_in_hand_counts_no_more() {
        let held = Held::new(10, Arc::default());
        let passes = |span: Duration| held.latest().began_at -= span;
        let slow = held.hold(20);
        passes(SLOW);
        let quick = held.hold(3);
        assert_eq!(held.bytes(), 23, "a second is not long");

        passes(SLOW);
        assert_eq!(held.bytes(), 3);
        drop(slow);
        assert_eq!(held.bytes(), 3, "it is not counted twice");
        drop(quick);
        assert_eq!(held.bytes(), 0);

        let _slow = held.hold(20);
        passes(2 * SLOW);
        assert_eq!(held.bytes(), 0, "nothing came meanwhile");
    }
}
