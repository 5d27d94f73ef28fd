//! An open connection to NATS, whose client runs on a thread of its own.
//!
//! The client reads while its server sends, and queues an answer to each `PING`. On the host's runtime, a server that sends endlessly
//! would stall other events. On its own thread it stalls only its own messages, until its connection is closed.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{io, thread};

use async_nats::{Client, ConnectOptions, Event, Message, Request, RequestError, ServerError, Statistics};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::task::coop;

use super::denied::Denied;
use crate::batching::PLACES;

/// Most bytes that a server may send in excess of what is due. It needs few for pings and for news of its cluster.
pub(super) const MAX_READ: u64 = 2 << 20;
/// The bytes that are due for each message, besides its answer: an error, or the first line of the answer.
const DUE_BYTES: u64 = 4 << 10;
/// How often the connection is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most messages that wait in the client until it writes them. It also writes those that were given up.
const QUEUED: usize = 64;
/// Most messages without an answer on one connection. The client remembers each of them until the connection is closed.
const MAX_UNANSWERED: usize = 2 * PLACES;
/// Most times that each server may wake the client until it has let this host in. With TLS, a server does so some dozen times.
const MAX_WAKES: usize = 64;

/// A client and its connection. The connection is closed when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Open {
    client: Client,
    pub(super) denied: Denied,
    /// Why the connection has ended; `None` while it is open. The client is not used after that: it would keep messages for a server
    /// that may never come back, and the answers to messages that were sent would never arrive.
    end: watch::Receiver<Option<End>>,
    traffic: Arc<Traffic>,
    /// The thread ends when this is dropped.
    _keep: Arc<oneshot::Sender<()>>,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The server or the network closed it, or the client panicked: it does so over some malformed answers.
    Lost,
    /// The server has sent [`MAX_READ`] in excess of what was due.
    Flooded,
}

/// The traffic of one connection, as far as the host answers for it: the messages that it sent, and what is due for them.
#[derive(Debug, Default)]
struct Traffic {
    /// The bytes that the server had reason to send.
    due: AtomicU64,
    /// The messages in flight, and those that were given up.
    unanswered: AtomicUsize,
}

impl Open {
    /// Connects to one of these servers.
    ///
    /// # Errors
    /// If no server lets this host in, or the system starts no thread.
    pub(super) async fn connect(options: ConnectOptions, urls: Vec<String>) -> Result<Self, async_nats::Error> {
        let (keep, kept) = oneshot::channel();
        let (opened, opening) = oneshot::channel();
        let (ended, end) = watch::channel(None);
        let (denied, traffic) = (Denied::default(), Arc::new(Traffic::default()));
        let serving = Serving { opened, ended, denied: denied.clone(), traffic: traffic.clone() };
        thread::Builder::new().name("outbox-nats".to_owned()).spawn(move || serving.run(options, urls, kept))?;
        let client = opening.await.map_err(|_| {
            io::Error::other("its client panicked during the login; check that a NATS server has this address")
        })??;
        Ok(Self { client, denied, end, traffic, _keep: Arc::new(keep) })
    }

    /// Whether the next batch may use this connection.
    pub(super) fn works(&self) -> bool {
        self.end.borrow().is_none()
            && self.end.has_changed().is_ok()
            && self.traffic.unanswered.load(Ordering::Relaxed) <= MAX_UNANSWERED
    }

    /// Why the connection has ended.
    pub(super) fn end(&self) -> End {
        self.end.borrow().unwrap_or(End::Lost)
    }

    /// Waits until the connection has ended.
    pub(super) async fn ended(&self) -> End {
        let mut end = self.end.clone();
        // It fails if the thread has panicked.
        let _ = end.wait_for(Option::is_some).await;
        self.end()
    }

    /// Sends a message, and waits for its answer.
    ///
    /// # Errors
    /// The errors of [`Client::send_request`].
    pub(super) async fn request(&self, subject: String, request: Request) -> Result<Message, RequestError> {
        self.traffic.due.fetch_add(DUE_BYTES, Ordering::Relaxed);
        self.traffic.unanswered.fetch_add(1, Ordering::Relaxed);
        let answer = self.client.send_request(subject, request).await;
        self.traffic.unanswered.fetch_sub(1, Ordering::Relaxed);
        if let Ok(answer) = &answer {
            self.traffic.due.fetch_add(u64::try_from(answer.length).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        answer
    }

    /// Waits until the deadline. Returns whether the server was silent for the last three quarters of this timeout; `None` if connecting
    /// took too long to tell.
    pub(super) async fn is_silent(&self, timeout: Duration, deadline: Instant) -> Option<bool> {
        let statistics = self.client.statistics();
        let read = || statistics.in_bytes.load(Ordering::Relaxed);
        let Some(from) = deadline.checked_sub(timeout / 4 * 3).filter(|from| *from >= Instant::now()) else {
            tokio::time::sleep_until(deadline.into()).await;
            return None;
        };
        tokio::time::sleep_until(from.into()).await;
        let before = read();
        tokio::time::sleep_until(deadline.into()).await;
        Some(read() == before)
    }
}

impl Traffic {
    /// Waits until the server has sent [`MAX_READ`] bytes in excess of what was due, or the client has connected anew. The client keeps an
    /// unfinished answer, and the answers to pings that the server does not read. After many errors, the client does not report a lost connection.
    async fn ended(&self, statistics: &Statistics) -> End {
        let read = || (statistics.in_bytes.load(Ordering::Relaxed), self.due.load(Ordering::Relaxed));
        let (mut left, mut before) = (MAX_READ, read());
        while left > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
            if statistics.connects.load(Ordering::Relaxed) > 1 {
                return End::Lost;
            }
            let now = read();
            left = left.saturating_add(now.1 - before.1).saturating_sub(now.0 - before.0).min(MAX_READ);
            before = now;
        }
        End::Flooded
    }
}

/// The thread's side of a connection.
struct Serving {
    opened: oneshot::Sender<Result<Client, async_nats::Error>>,
    ended: watch::Sender<Option<End>>,
    denied: Denied,
    traffic: Arc<Traffic>,
}

impl Serving {
    /// Runs until the connection has ended, or is not needed any more.
    fn run(self, options: ConnectOptions, urls: Vec<String>, kept: oneshot::Receiver<()>) {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = self.opened.send(Err(error.into()));
                return;
            }
        };
        runtime.block_on(async move {
            tokio::select! {
                () = self.serve(options, urls) => {}
                _ = kept => {}
            }
        });
        // Closes the connection, and does not wait for a name that is still being resolved.
        runtime.shutdown_background();
    }

    async fn serve(self, options: ConnectOptions, urls: Vec<String>) {
        let (is_lost, mut lost) = watch::channel(false);
        let denied = self.denied;
        let options = options.client_capacity(QUEUED).event_callback(move |event| {
            match event {
                Event::Disconnected | Event::Closed | Event::LameDuckMode => {
                    is_lost.send_replace(true);
                }
                Event::ServerError(ServerError::Other(error)) => denied.note(&error),
                _ => {}
            }
            std::future::ready(())
        });
        let connecting = woken_at_most(MAX_WAKES * urls.len(), options.connect(urls));
        let connected: Result<Client, async_nats::Error> = match connecting.await {
            Some(connected) => connected.map_err(Into::into),
            None => {
                Err("the server sent too much before the login was complete; check that a NATS server has this address".into())
            }
        };
        let statistics = connected.as_ref().ok().map(Client::statistics);
        if self.opened.send(connected).is_err() {
            return;
        }
        let Some(statistics) = statistics else { return };
        let end = tokio::select! {
            end = self.traffic.ended(&statistics) => end,
            // It fails if the task of the client has panicked.
            _ = lost.wait_for(|is_lost| *is_lost) => End::Lost,
        };
        self.ended.send_replace(Some(end));
    }
}

/// Waits for a future. `None` if it is woken more often than `most`, or never waits within one poll. Until the client is connected, it does
/// not say how much it has read.
async fn woken_at_most<T>(most: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut wakes = 0;
    poll_fn(|context| {
        wakes += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if wakes > most || !coop::has_budget_remaining() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn endless<F: Future<Output = ()>>(step: impl Fn() -> F) {
        loop {
            step().await;
        }
    }

    #[tokio::test]
    async fn future_that_is_woken_endlessly_or_never_waits_is_given_up() {
        let ends = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            7
        };
        assert_eq!(woken_at_most(10, ends).await, Some(7));
        assert_eq!(woken_at_most(10, endless(tokio::task::yield_now)).await, None);
        assert_eq!(woken_at_most(usize::MAX, endless(coop::consume_budget)).await, None);
    }
}
