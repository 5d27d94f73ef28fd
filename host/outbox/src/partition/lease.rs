//! Until when other hosts leave this one's partitions alone.

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::atomic::{AtomicU64, Ordering};

/// By this host's clock a lease ends earlier than by the database's, by one part in this many: clocks run at different speeds.
pub(super) const MARGIN_DIVISOR: u32 = 30;

/// When a lease ends by this host's clock. `asked_at` is the time before the statement was sent that began or renewed the lease.
pub(crate) fn own_lease_end(asked_at: Instant, length: Duration) -> Instant {
    asked_at + length.saturating_sub(length / MARGIN_DIVISOR)
}

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
        let end = own_lease_end(beat_began, length);
        let micros = end.saturating_duration_since(self.began).as_micros();
        self.end.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    pub(super) fn end(&self) -> Instant {
        self.began + Duration::from_micros(self.end.load(Ordering::SeqCst))
    }
}
