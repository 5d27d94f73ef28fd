//! What a connection waits for: its client, or the host.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Whether the host works for a client, and else since when it waits for that client.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    /// When the client began its request, or took something of an answer last, in microseconds since then.
    last_us: AtomicU64,
    /// Whether some of a request has come.
    has_begun: AtomicBool,
    is_worked_on: AtomicBool,
}

impl Activity {
    /// Of a connection that was made just now.
    pub(crate) fn new() -> Self {
        Self {
            opened: Instant::now(),
            last_us: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            is_worked_on: AtomicBool::new(false),
        }
    }

    /// The client sent something just now. Its first bytes count, and no later ones: whoever sends a byte now and then would never
    /// be idle, and keep everybody else away.
    pub(crate) fn sent(&self) {
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            self.moved();
        }
    }

    /// The client took something of its answer just now.
    pub(crate) fn took(&self) {
        self.moved();
    }

    fn moved(&self) {
        let since = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last_us.store(since, Ordering::Relaxed);
    }

    /// The request has arrived whole: the host works on it.
    fn arrived(&self) {
        self.is_worked_on.store(true, Ordering::Relaxed);
    }

    /// The host has an answer: it is the client's turn to take it, and to send another request.
    pub(crate) fn answered(&self) {
        self.moved();
        self.has_begun.store(false, Ordering::Relaxed);
        self.is_worked_on.store(false, Ordering::Relaxed);
    }

    /// For how long the host has waited for the client: to send a whole request, or to take an answer. `None` while the host works
    /// for it.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let last = Duration::from_micros(self.last_us.load(Ordering::Relaxed));
        (!self.is_worked_on.load(Ordering::Relaxed)).then(|| self.opened.elapsed().saturating_sub(last))
    }
}

/// The body of a request, which tells when it has arrived.
pub(crate) struct WatchedBody {
    body: Incoming,
    activity: Arc<Activity>,
}

impl WatchedBody {
    pub(crate) fn new(body: Incoming, activity: Arc<Activity>) -> Self {
        if body.is_end_stream() {
            activity.arrived();
        }
        Self { body, activity }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.activity.arrived();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
