//! The proof that this host is there.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How long a lock must be seen free before its owner counts as gone: a connection that broke is opened again sooner.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(3);
/// How long this host may begin calls after its session was proven.
const CALLS_BEGIN: Duration = Duration::from_secs(2);
/// How long its calls may go on after that, where none may be under way when another host begins one: 100 ms less than the others
/// wait, since clocks run at different speeds.
const CALLS_END: Duration = Duration::from_millis(2_900);

/// Whether this host holds the lock of its session, and whether others rely on that: they take its partitions over when they see the
/// lock free.
#[derive(Debug)]
pub(crate) struct SessionProof {
    began: Instant,
    /// When the session was last proven, in microseconds since `began`; 0 without a session.
    proven_at: AtomicU64,
    /// When the last confirmed session was last proven, in the same way.
    confirmed_at: AtomicU64,
    /// How many sessions this host has had.
    count: AtomicU32,
    /// The last session during which this host asked the table what it holds. Without a session, other hosts may have taken all of it.
    confirmed: AtomicU32,
    /// Whether other hosts may rely on the session.
    is_announced: AtomicBool,
    /// Notified when it is known for the first time whether there is a session.
    known: Notify,
}

impl SessionProof {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            proven_at: AtomicU64::new(0),
            confirmed_at: AtomicU64::new(0),
            count: AtomicU32::new(0),
            confirmed: AtomicU32::new(0),
            is_announced: AtomicBool::new(false),
            known: Notify::new(),
        }
    }

    /// Notes that the lock was held at this time, or that there is no session. Returns whether a session began or ended by that.
    pub(super) fn set(&self, proven_at: Option<Instant>) -> bool {
        let micros =
            |at: Instant| u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX).max(1);
        if proven_at.is_some() && !self.is_held() {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(at) = proven_at.filter(|_| self.is_confirmed()) {
            self.confirmed_at.fetch_max(micros(at), Ordering::SeqCst);
        }
        let before = self.proven_at.swap(proven_at.map_or(0, micros), Ordering::SeqCst);
        (before > 0) != proven_at.is_some()
    }

    /// Whether there is a session.
    pub(crate) fn is_held(&self) -> bool {
        self.proven_at.load(Ordering::SeqCst) > 0
    }

    /// How many sessions this host has had.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Says that it is known whether there is a session.
    pub(crate) fn notify_known(&self) {
        self.known.notify_one();
    }

    /// Waits until that is known, for this long at most: a host that takes partitions before others can see whether it is there
    /// would, if it died just then, hold them for a whole lease.
    pub(crate) async fn wait_until_known(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.known.notified()).await;
    }

    /// Prepares the next beat: from now on other hosts may rely on the session. Returns whether there is one.
    pub(crate) fn begin_announcing(&self) -> bool {
        let count = self.count();
        let proven_at = self.proven_at.load(Ordering::SeqCst);
        if proven_at > 0 && !self.is_announced.load(Ordering::SeqCst) {
            // Nobody has relied on a session until now, so nobody has taken anything for want of one.
            self.confirmed_at.fetch_max(proven_at, Ordering::SeqCst);
            self.confirmed.store(count, Ordering::SeqCst);
            self.is_announced.store(true, Ordering::SeqCst);
        }
        proven_at > 0
    }

    /// Notes whether a beat told others that there is a session.
    pub(crate) fn set_announced(&self, is_held: bool) {
        self.is_announced.store(is_held, Ordering::SeqCst);
    }

    /// Notes that this host has seen what it holds, after this many sessions had begun.
    pub(super) fn confirm(&self, count: u32) {
        let proven_at = self.proven_at.load(Ordering::SeqCst);
        self.confirmed.store(count, Ordering::SeqCst);
        if self.is_confirmed() {
            self.confirmed_at.fetch_max(proven_at, Ordering::SeqCst);
        }
    }

    /// Whether this host has seen what it holds since its session began.
    fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::SeqCst) == self.count()
    }

    /// Whether calls may begin of what was read: others have not seen the lock free for so long that they may have taken this host's
    /// partitions over, and what it holds was seen since the session began.
    pub(crate) fn may_begin(&self) -> bool {
        let proven_at = self.proven_at.load(Ordering::SeqCst);
        !self.is_announced.load(Ordering::SeqCst)
            || (proven_at > 0 && self.began.elapsed() < Duration::from_micros(proven_at) + CALLS_BEGIN && self.is_confirmed())
    }

    /// When calls must have ended if none may be running when another host begins one; `None` while no host relies on the session.
    pub(super) fn calls_end(&self) -> Option<Instant> {
        let confirmed_at = || self.began + Duration::from_micros(self.confirmed_at.load(Ordering::SeqCst));
        self.is_announced.load(Ordering::SeqCst).then(|| confirmed_at() + CALLS_END)
    }
}
