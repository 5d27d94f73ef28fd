//! Since when pooled connections are no longer to be trusted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Since when connections are no longer to be trusted. After a failover, a restart or a change of the table, one call meets the old
/// state of things; all the connections that were opened before are thrown away then, without asking each of them.
#[derive(Debug)]
pub(super) struct Trust {
    started: Instant,
    /// Microseconds after the start; 0 means never.
    lost_at: AtomicU64,
}

impl Trust {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), lost_at: AtomicU64::new(0) }
    }

    /// Notes that no connection is to be used again that is open now.
    pub(super) fn lose(&self) {
        self.lost_at.fetch_max(micros(self.started.elapsed()), Ordering::Relaxed);
    }

    /// Whether a connection of this age was opened after the last such moment.
    pub(super) fn holds_for(&self, age: Duration) -> bool {
        let lost_at = self.lost_at.load(Ordering::Relaxed);
        lost_at == 0 || micros(self.started.elapsed().saturating_sub(age)) > lost_at
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_were_open_when_trust_was_lost_are_not_trusted() {
        let trust = Trust { started: Instant::now() - Duration::from_secs(10), lost_at: AtomicU64::new(0) };
        assert!(trust.holds_for(Duration::from_secs(5)));

        trust.lose();

        assert!(!trust.holds_for(Duration::from_secs(5)));
        assert!(!trust.holds_for(Duration::from_secs(60)), "opened before the first of them");
    }
}
