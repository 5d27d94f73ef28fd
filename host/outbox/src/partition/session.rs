//! Whether others may take this host's partitions over because they see no session of it.

use std::time::Duration;

use tokio::time::Instant;

use super::Partitions;
use crate::sync::atomic::Ordering;

/// How long a lock must be seen free before its owner counts as gone: a connection that broke is opened again sooner.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(3);
/// How long this host may begin calls after its session was proven.
const CALLS_BEGIN: Duration = Duration::from_secs(2);
/// How long its calls may go on after that, where none may be under way when another host begins one: 100 ms less than the others
/// wait, since clocks run at different speeds.
const CALLS_END: Duration = Duration::from_millis(2_900);

impl Partitions {
    /// Notes that the lock of this host's session was held at this time, or that there is no session.
    pub(crate) fn set_session(&self, proven_at: Option<Instant>) {
        let micros =
            |at: Instant| u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX).max(1);
        if proven_at.is_some() && !self.has_session() {
            self.sessions.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(at) = proven_at.filter(|_| self.is_confirmed()) {
            self.last_proof.fetch_max(micros(at), Ordering::SeqCst);
        }
        let before = self.session.swap(proven_at.map_or(0, micros), Ordering::SeqCst);
        if (before > 0) != proven_at.is_some() {
            self.request_beat();
        }
    }

    /// Whether this host has a session.
    pub(crate) fn has_session(&self) -> bool {
        self.session.load(Ordering::SeqCst) > 0
    }

    /// Says that it is known whether this host has a session.
    pub(crate) fn notify_session_known(&self) {
        self.session_known.notify_one();
    }

    /// Waits until that is known, for this long at most: a host that takes partitions before others can see whether it is there
    /// would, if it died just then, hold them for a whole lease.
    pub(crate) async fn wait_until_session_known(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.session_known.notified()).await;
    }

    /// Prepares the next beat: from now on other hosts may rely on the session. Returns whether there is one.
    pub(crate) fn begin_announcing_session(&self) -> bool {
        let sessions = self.sessions.load(Ordering::SeqCst);
        let proven_at = self.session.load(Ordering::SeqCst);
        if proven_at > 0 && !self.is_told_of_session.load(Ordering::SeqCst) {
            // Nobody has relied on a session until now, so nobody has taken anything for want of one.
            self.last_proof.fetch_max(proven_at, Ordering::SeqCst);
            self.confirmed.store(sessions, Ordering::SeqCst);
            self.is_told_of_session.store(true, Ordering::SeqCst);
        }
        proven_at > 0
    }

    /// Notes whether a beat told others that this host has a session.
    pub(crate) fn announced_session(&self, has_one: bool) {
        self.is_told_of_session.store(has_one, Ordering::SeqCst);
    }

    /// When calls of what was read must have ended. Where order is not kept, one may go on until the lease ends: the same event may
    /// be with a listener of another host by then.
    pub(super) fn calls_end(&self) -> Instant {
        let lease_end = self.lease_end();
        if !self.keeps_order || !self.is_told_of_session.load(Ordering::SeqCst) {
            return lease_end;
        }
        lease_end.min(self.began + Duration::from_micros(self.last_proof.load(Ordering::SeqCst)) + CALLS_END)
    }

    /// Whether calls may begin of what was read: others have not seen the lock of this host's session free for so long that
    /// they may have taken its partitions over, and what it holds was seen since the session began.
    pub(crate) fn may_begin(&self) -> bool {
        let proven_at = self.session.load(Ordering::SeqCst);
        !self.is_told_of_session.load(Ordering::SeqCst)
            || (proven_at > 0 && self.began.elapsed() < Duration::from_micros(proven_at) + CALLS_BEGIN && self.is_confirmed())
    }

    /// Whether this host has seen what it holds since its session began.
    fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::SeqCst) == self.sessions.load(Ordering::SeqCst)
    }

    /// Notes that this host has seen what it holds, after this many sessions had begun.
    pub(super) fn confirm(&self, sessions: u32) {
        let proven_at = self.session.load(Ordering::SeqCst);
        self.confirmed.store(sessions, Ordering::SeqCst);
        if self.is_confirmed() {
            self.last_proof.fetch_max(proven_at, Ordering::SeqCst);
        }
    }
}
