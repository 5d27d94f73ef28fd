//! The bytes of cold events in this process's hands, from the read until the outcome is handed on.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes they have together, and who is told when some are let go.
#[derive(Debug)]
pub(super) struct Held {
    bytes: AtomicUsize,
    /// Few enough for more to be taken.
    few: usize,
    let_go: Arc<Notify>,
}

impl Held {
    /// Whoever waits for `let_go` is told when there are few again.
    pub(super) fn new(few: usize, let_go: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), few, let_go })
    }

    pub(super) fn are_few(&self) -> bool {
        self.bytes() <= self.few
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        HeldBytes { held: self.clone(), bytes }
    }
}

/// Counts the bytes of one event until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    held: Arc<Held>,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let before = self.held.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        if before > self.held.few && before - self.bytes <= self.held.few {
            self.held.let_go.notify_waiters();
        }
    }
}
