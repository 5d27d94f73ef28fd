//! The outbox as handlers know it, whatever the type of its store.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use outbox::dead::DeadEvents;
use outbox::metrics::Metrics;
use outbox::outbox::ApiHandle;
use outbox::writer::Emitted;
use outbox::{Monitor, Outbox, WriteError, Writer};
use outbox_event::{Envelope, OwnerId, PluginStatus, TraceParent};
use outbox_listener::Listeners;
use outbox_store::{RouteRecord, SharedStore, Stats, Store};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::HttpConfig;
use super::access::Access;
use super::access::refused::Refused;
use super::access::token::Role;
use super::cached::Cached;
use super::peer::CutOff;
use super::problem::{Kind, Problem};

/// How many requests may read the database at once. They share its connections with the claims and outcomes of the host, which must
/// never wait for readers.
const READERS: usize = 2;
/// How long a request waits for a place.
const READ_WITHIN: Duration = Duration::from_secs(3);
/// How long a request waits for a connection to the database: less than a page waits for what it knows of the table, which can then tell
/// a database that is gone from one that is slow.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The outbox, as handlers know it; cheap to clone.
#[derive(Clone)]
pub(super) struct Host(Arc<Parts>);

/// What a [`Host`] is made of.
pub(super) struct Parts {
    /// For what a request asks, which soon fails without a connection.
    pub(super) store: Arc<dyn Store>,
    /// For changes of many events, which a busy or lost database must not end half-way so soon.
    pub(super) lasting: Arc<dyn Store>,
    /// Dead events, by way of `lasting`.
    pub(super) dead: DeadEvents,
    pub(super) metrics: Arc<Metrics>,
    pub(super) monitor: Monitor,
    pub(super) listeners: Arc<Listeners>,
    /// Who this process is in `locked_by`.
    pub(super) owner: OwnerId,
    /// Purge settings and plugins.
    pub(super) handle: ApiHandle,
    pub(super) access: Access,
    pub(super) config: HttpConfig,
    pub(super) refused: Arc<Refused>,
    /// The counts of events by state.
    pub(super) stats: Cached<Stats>,
    /// Every route with its counts.
    pub(super) routes: Cached<Arc<[RouteRecord]>>,
    /// The description of the API, made when somebody asks for it first.
    pub(super) document: OnceLock<Bytes>,
    writer: Arc<dyn Emit>,
    streams: AtomicUsize,
    readers: Arc<Semaphore>,
    /// The places for viewers.
    viewer_readers: Arc<Semaphore>,
    confirming: Arc<Mutex<()>>,
}

/// A place among the requests that read the database.
#[derive(Debug)]
pub(super) struct ReadPlace(#[expect(dead_code, reason = "held, not read")] [Option<OwnedSemaphorePermit>; 2]);

/// The right to confirm a change of many events.
#[derive(Debug)]
pub(super) struct Confirming(#[expect(dead_code, reason = "held, not read")] OwnedMutexGuard<()>);

impl Deref for Host {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Host {
    pub(super) fn new<S: SharedStore>(outbox: &Outbox<S>, config: HttpConfig) -> Self {
        Self(Arc::new(Parts {
            store: outbox.store().connecting_within(CONNECT_WITHIN).unwrap_or_else(|| outbox.store().clone()),
            lasting: outbox.store().clone(),
            dead: outbox.dead(),
            metrics: outbox.metrics().clone(),
            monitor: outbox.monitor(),
            listeners: outbox.listeners().clone(),
            owner: outbox.owner().clone(),
            handle: outbox.api_handle(),
            access: Access::new(config.tokens.clone(), config.open),
            config,
            refused: Refused::new(outbox.store().clone()),
            stats: Cached::default(),
            routes: Cached::default(),
            document: OnceLock::new(),
            writer: Arc::new(outbox.writer().clone()),
            streams: AtomicUsize::new(0),
            readers: Arc::new(Semaphore::new(READERS)),
            // One place is left for operators, however much viewers read.
            viewer_readers: Arc::new(Semaphore::new(READERS - 1)),
            confirming: Arc::default(),
        }))
    }

    /// Takes a place among the clients of the stream; `None` when all are taken.
    pub(super) fn stream_place(&self) -> Option<StreamPlace> {
        let most = self.config.max_streams;
        let taken = self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < most).then_some(now + 1));
        taken.is_ok().then(|| StreamPlace(self.clone()))
    }
}

impl Parts {
    /// A place among the requests that read the database, held until the statement has ended, even if the client has gone.
    ///
    /// # Errors
    /// 503 when none is free for too long.
    pub(super) async fn read_place(&self, role: Role) -> Result<ReadPlace, Problem> {
        let places = async {
            let of_viewers = match role {
                Role::Viewer => self.viewer_readers.clone().acquire_owned().await.ok(),
                Role::Operator | Role::Admin => None,
            };
            ReadPlace([of_viewers, self.readers.clone().acquire_owned().await.ok()])
        };
        let busy =
            |_| Problem::new(Kind::Busy, "too many requests are reading the database; send the request again in a moment");
        tokio::time::timeout(READ_WITHIN, places).await.map_err(busy)
    }

    /// The right to compare the expected with the matching number of events, held until the first batch is changed: of two
    /// requests that expect the same events, the second counts what the first has left.
    ///
    /// # Errors
    /// 503 when another request holds it for too long, the host stops or the client has gone.
    pub(super) async fn confirming(&self, cut_off: &mut CutOff) -> Result<Confirming, Problem> {
        tokio::select! {
            alone = self.confirming.clone().lock_owned() => Ok(Confirming(alone)),
            () = cut_off.wait() => Err(CutOff::problem()),
            () = tokio::time::sleep(READ_WITHIN) => {
                Err(Problem::new(Kind::Busy, "the host is starting another replay or purge; send the request again in a moment"))
            }
        }
    }

    /// Writes events in a transaction of their own, in the request's trace, and hands them to this host's workers.
    ///
    /// # Errors
    /// As [`Writer::emit`].
    pub(super) async fn emit(&self, trace: Option<TraceParent>, envelopes: Vec<Envelope>) -> Result<Emitted, WriteError> {
        self.writer.emit(trace, envelopes).await
    }

    /// The plugins of this host as they are now.
    pub(super) fn plugins(&self) -> Vec<PluginStatus> {
        self.handle.plugins()
    }

    /// Wakes this host's poller and the other hosts after a change. A hint: their polls find the events all the same.
    pub(super) async fn tell_hosts(&self) {
        self.handle.wake_poller();
        // The next answer shows the change.
        self.stats.forget().await;
        self.routes.forget().await;
        if let Err(error) = self.store.notify().await {
            tracing::warn!(
                target: "outbox::http::host",
                error = %outbox_event::chain::chain(&error),
                "a change was not announced to the other hosts; they see it at their next poll"
            );
        }
    }
}

/// A place among the clients of the stream, given back when it is dropped.
pub(super) struct StreamPlace(Host);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Writes events, whatever the type of the store.
trait Emit: Send + Sync {
    fn emit(&self, trace: Option<TraceParent>, envelopes: Vec<Envelope>) -> BoxFuture<'_, Result<Emitted, WriteError>>;
}

impl<S: SharedStore> Emit for Writer<S> {
    fn emit(&self, trace: Option<TraceParent>, envelopes: Vec<Envelope>) -> BoxFuture<'_, Result<Emitted, WriteError>> {
        Box::pin(self.emit_from_request(trace, envelopes))
    }
}
