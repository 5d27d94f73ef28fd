//! Whether others may take this host's partitions over because they see no session of it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Partitions;

/// How long this host may begin calls after its session was proven: others take its partitions over when they have seen its lock free
/// for longer.
const SESSION: Duration = Duration::from_secs(2);

impl Partitions {
    /// Notes that the lock of this host's session was held at this time, or that there is no session.
    pub(crate) fn set_session(&self, proven_at: Option<Instant>) {
        let micros =
            |at: Instant| u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.session.swap(proven_at.map_or(0, micros), Ordering::SeqCst);
        if (before > 0) != proven_at.is_some() {
            self.ask();
        }
    }

    /// Whether this host has a session.
    pub(crate) fn has_session(&self) -> bool {
        self.session.load(Ordering::SeqCst) > 0
    }

    /// Says that it is known whether this host has a session.
    pub(crate) fn knows_session(&self) {
        self.session_known.notify_one();
    }

    /// Waits until that is known, for so long at most: a host that takes partitions before others can see whether it is there would, if
    /// it died just then, hold them for a whole lease.
    pub(crate) async fn session_known(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.session_known.notified()).await;
    }

    /// Whether the next beat says that this host has a session.
    pub(crate) fn tells_of_session(&self) -> bool {
        let has_one = self.has_session();
        self.is_told_of_session.fetch_or(has_one, Ordering::SeqCst);
        has_one
    }

    /// Notes what a beat has said of it.
    pub(crate) fn told_of_session(&self, has_one: bool) {
        self.is_told_of_session.store(has_one, Ordering::SeqCst);
    }

    /// Whether calls may begin of what was read: others have not seen the lock of this host's session free for so long that they may
    /// have taken its partitions over.
    pub(crate) fn may_begin(&self) -> bool {
        let proven_at = self.session.load(Ordering::SeqCst);
        !self.is_told_of_session.load(Ordering::SeqCst)
            || (proven_at > 0 && self.began.elapsed() < Duration::from_micros(proven_at) + SESSION)
    }
}
