//! What handlers know of the outbox that they serve, whatever the type of its store.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::HttpConfig;
use super::access::Access;
use super::cached::Cached;
use super::peer::CutOff;
use super::problem::{Kind, Problem};
use super::refused::Refused;
use super::token::Role;
use crate::dead::DeadEvents;
use crate::event::{Envelope, OwnerId};
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::node::PluginStatus;
use crate::outbox::{Inside, Monitor, Outbox};
use crate::store::{RouteRecord, SharedStore, Stats, Store};
use crate::telemetry::Caller;
use crate::writer::{Emitted, WriteError, Writer};

/// How many requests may look into the database at once. They share its connections with the claims and outcomes of the host,
/// which must never wait for whoever looks.
const LOOKS: usize = 2;
/// How long a request waits to be one of them.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// The outbox, as handlers know it; cheap to clone.
#[derive(Clone)]
pub(super) struct Host(Arc<Parts>);

/// What a [`Host`] is made of.
pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) dead: DeadEvents,
    pub(super) metrics: Arc<Metrics>,
    pub(super) monitor: Monitor,
    pub(super) listeners: Arc<Listeners>,
    /// Who this process is in `locked_by`.
    pub(super) owner: OwnerId,
    /// Mode, queues, purge settings and plugins.
    pub(super) inside: Inside,
    pub(super) access: Access,
    pub(super) config: HttpConfig,
    pub(super) refused: Arc<Refused>,
    /// How many events stand where.
    pub(super) stats: Cached<Stats>,
    /// Every route with its counts.
    pub(super) routes: Cached<Arc<[RouteRecord]>>,
    /// The description of the API, made when somebody asks for it first.
    pub(super) document: OnceLock<Bytes>,
    writer: Arc<dyn Emit>,
    streams: AtomicUsize,
    looks: Arc<Semaphore>,
    /// The places that callers have who may only look.
    viewer_looks: Arc<Semaphore>,
    confirming: Arc<Mutex<()>>,
}

/// A place among those who look into the database.
#[derive(Debug)]
pub(super) struct LookPlace(#[expect(dead_code, reason = "held, not read")] [Option<OwnedSemaphorePermit>; 2]);

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
            store: outbox.store().clone(),
            dead: outbox.dead(),
            metrics: outbox.metrics().clone(),
            monitor: outbox.monitor(),
            listeners: outbox.listeners().clone(),
            owner: outbox.owner().clone(),
            inside: outbox.inside(),
            access: Access::new(config.tokens.clone(), config.open),
            config,
            refused: Refused::new(outbox.store().clone()),
            stats: Cached::default(),
            routes: Cached::default(),
            document: OnceLock::new(),
            writer: Arc::new(outbox.writer().clone()),
            streams: AtomicUsize::new(0),
            looks: Arc::new(Semaphore::new(LOOKS)),
            // One is left for operators, whatever viewers ask for.
            viewer_looks: Arc::new(Semaphore::new(LOOKS - 1)),
            confirming: Arc::default(),
        }))
    }

    /// Takes a place among those who follow; `None` when there is none.
    pub(super) fn stream_place(&self) -> Option<StreamPlace> {
        let most = self.config.max_streams;
        let taken = self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < most).then_some(now + 1));
        taken.is_ok().then(|| StreamPlace(self.clone()))
    }
}

impl Parts {
    /// A place among those who look into the database, held until its statement has ended, even if nobody waits for that any more.
    ///
    /// # Errors
    /// 503 when others look for too long.
    pub(super) async fn look_place(&self, role: Role) -> Result<LookPlace, Problem> {
        let places = async {
            let of_viewers = match role {
                Role::Viewer => self.viewer_looks.clone().acquire_owned().await.ok(),
                Role::Operator | Role::Admin => None,
            };
            LookPlace([of_viewers, self.looks.clone().acquire_owned().await.ok()])
        };
        let busy = |_| Problem::new(Kind::Busy, "others look into the database already; ask again in a moment");
        tokio::time::timeout(LOOK_WITHIN, places).await.map_err(busy)
    }

    /// The right to compare what somebody expects with what matches, held until the first batch is changed: of two requests to this host that
    /// expect the same events, the second one counts what the first has left.
    ///
    /// # Errors
    /// 503 when others hold it for too long, the host stops or the client has gone.
    pub(super) async fn confirming(&self, cut_off: &mut CutOff) -> Result<Confirming, Problem> {
        tokio::select! {
            alone = self.confirming.clone().lock_owned() => Ok(Confirming(alone)),
            () = cut_off.wait() => Err(CutOff::problem()),
            () = tokio::time::sleep(LOOK_WITHIN) => {
                Err(Problem::new(Kind::Busy, "the host begins another replay or purge; send the request again in a moment"))
            }
        }
    }

    /// Writes events in a transaction of their own and hands them on.
    ///
    /// # Errors
    /// As [`Writer::emit`].
    pub(super) async fn emit(&self, caller: Caller, envelopes: Vec<Envelope>) -> Result<Emitted, WriteError> {
        self.writer.emit(caller, envelopes).await
    }

    /// The plugins of this host as they are now.
    pub(super) fn plugins(&self) -> Vec<PluginStatus> {
        #[cfg(feature = "wasm")]
        return self.inside.plugins();
        #[cfg(not(feature = "wasm"))]
        Vec::new()
    }

    /// Tells this host's poller and the other hosts that there is something to do. A hint: their polls find it all the same.
    pub(super) async fn tell_hosts(&self) {
        self.inside.wake.now();
        // Whoever changed something sees it.
        self.stats.forget().await;
        self.routes.forget().await;
        if let Err(error) = self.store.notify().await {
            tracing::warn!(error = %crate::chain(&error), "the hosts could not be told; they see it at their next poll");
        }
    }
}

/// A place among those who follow, given back when it is dropped.
pub(super) struct StreamPlace(Host);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What writes events, whatever the type of its store.
trait Emit: Send + Sync {
    fn emit(&self, caller: Caller, envelopes: Vec<Envelope>) -> BoxFuture<'_, Result<Emitted, WriteError>>;
}

impl<S: SharedStore> Emit for Writer<S> {
    fn emit(&self, caller: Caller, envelopes: Vec<Envelope>) -> BoxFuture<'_, Result<Emitted, WriteError>> {
        Box::pin(self.emit_for(caller, envelopes))
    }
}
