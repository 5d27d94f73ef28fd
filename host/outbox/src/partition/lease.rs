//! Until when other hosts leave this one's partitions alone.

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::atomic::{AtomicU64, Ordering};

/// By this host's clock its lease ends earlier than by the database's, by one part in this many: clocks run at different speeds.
pub(super) const MARGIN_DIVISOR: u32 = 30;

/// The lease of this host, by its own clock.
#[derive(Debug)]
pub(super) struct Lease {
    began: Instant,
    /// In microseconds since `began`.
    end: AtomicU64,
}

impl Lease {
    /// One that has ended.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), end: AtomicU64::new(0) }
    }

    /// Renews it by a heartbeat that was begun at this time.
    pub(super) fn renew(&self, beat_began: Instant, length: Duration) {
        let end = beat_began + length.saturating_sub(length / MARGIN_DIVISOR);
        let micros = end.saturating_duration_since(self.began).as_micros();
        self.end.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    pub(super) fn end(&self) -> Instant {
        self.began + Duration::from_micros(self.end.load(Ordering::SeqCst))
    }
}
