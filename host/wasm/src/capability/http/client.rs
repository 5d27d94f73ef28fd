//! Sends the requests of one plugin: what is granted, over connections of its own, within its bounds.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use outbox_event::text::keepable;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::WasiBody;

use super::connector::{ConnectError, Connector, InTime};
use super::lookups::Lookups;
use crate::manifest::{Http, Origin};

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// The most connections to one host that are kept unused.
const MAX_IDLE: usize = 64;
/// The most bytes of a response's head: a connection buffers no more.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The same for HTTP/2, which counts the fields.
const MAX_FIELD_BYTES: u32 = 16 << 10;

/// What HTTP/2 may send of one response before somebody reads it.
const STREAM_WINDOW: u32 = 64 << 10;
/// The longest that a connection may take, TLS included.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections beyond those that requests use: kept ones, and ones on their way out.
const SPARE_CONNECTIONS: usize = 64;

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotAllowed(Origin),
    #[error(transparent)]
    Connect(ConnectError),
    #[error("the response took longer than {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    #[error("{0} requests of this plugin are under way, and none ended in time")]
    Busy(usize),
    #[error("the response has more than {0} bytes")]
    TooLarge(u64),
    #[error("{0}")]
    Broken(String),
}

/// The client of one plugin. Its connections are nobody else's, and go with it.
pub(crate) struct HttpClient {
    grant: Arc<Http>,
    transport: Transport,
    permits: Arc<Semaphore>,
}

/// Who answers a granted request.
enum Transport {
    Network(Box<legacy::Client<InTime<HttpsConnector<Connector>>, WasiBody>>),
    /// Nothing leaves this process.
    StandIn(Arc<dyn HttpStandIn>),
}

/// Answers the requests of a plugin in place of the network: in a test, or when a plugin is tried.
#[async_trait]
pub trait HttpStandIn: Send + Sync + 'static {
    /// The response to a request that the plugin is granted.
    ///
    /// # Errors
    /// Why there is none: the plugin is told that the other side is unavailable, for this reason.
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, String>;
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl HttpClient {
    pub(crate) fn new(grant: Http, tls: &rustls::ClientConfig, lookups: &Lookups) -> Self {
        let grant = Arc::new(grant);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_all_versions().wrap_connector(
                Connector {
                    grant: grant.clone(),
                    lookups: Arc::new(lookups.of_plugin()),
                    sockets: Arc::new(Semaphore::new(grant.concurrency + SPARE_CONNECTIONS)),
                },
            );
        let connector = InTime { connector, longest: HANDSHAKE };
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE.min(grant.concurrency))
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .http2_max_header_list_size(MAX_FIELD_BYTES)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(16 * STREAM_WINDOW)
            .http2_keep_alive_interval(IDLE)
            .http2_keep_alive_timeout(HANDSHAKE)
            .build(connector);
        Self::over(grant, Transport::Network(Box::new(client)))
    }

    /// The same grant with somebody else who answers.
    pub(crate) fn answered_by(&self, stand_in: Arc<dyn HttpStandIn>) -> Self {
        Self::over(self.grant.clone(), Transport::StandIn(stand_in))
    }

    fn over(grant: Arc<Http>, transport: Transport) -> Self {
        let permits = Arc::new(Semaphore::new(grant.concurrency));
        Self { grant, transport, permits }
    }

    /// Refuses what is not granted, before anything is done.
    pub(super) fn check(&self, url: &http::Uri) -> Result<(), SendError> {
        let origin = Origin::of(url).map_err(SendError::Invalid)?;
        if self.grant.allows(&origin) { Ok(()) } else { Err(SendError::NotAllowed(origin)) }
    }

    /// Sends a request that was [checked](Self::check), and waits for the head of its response. The whole takes at most
    /// `timeout`, the body included, and never longer than the grant says.
    pub(super) async fn send(
        self: Arc<Self>,
        request: http::Request<WasiBody>,
        timeout: Option<Duration>,
    ) -> Result<http::Response<ResponseBody>, SendError> {
        let timeout = timeout.unwrap_or(self.grant.timeout).min(self.grant.timeout);
        let ends = Instant::now() + timeout;
        let permit = tokio::time::timeout_at(ends, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| SendError::Busy(self.grant.concurrency))?.expect("never closed");
        let response = tokio::time::timeout_at(ends, self.transport.answer(request)).await;
        let response = response.map_err(|_| SendError::TimedOut(timeout))??;
        let most = self.grant.max_response.0;
        if response.body().size_hint().lower() > most {
            return Err(SendError::TooLarge(most));
        }
        Ok(response.map(|incoming| ResponseBody {
            incoming,
            left: most,
            most,
            timeout,
            ends: Box::pin(tokio::time::sleep_until(ends)),
            _permit: permit,
        }))
    }
}

impl Transport {
    async fn answer(
        &self,
        request: http::Request<WasiBody>,
    ) -> Result<http::Response<Either<Incoming, Full<Bytes>>>, SendError> {
        match self {
            Self::Network(client) => {
                let response = client.request(request).await.map_err(SendError::of)?;
                Ok(response.map(Either::Left))
            }
            Self::StandIn(stand_in) => {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(|error| SendError::Broken(text(&error)))?.to_bytes();
                let response = stand_in.send(http::Request::from_parts(head, body)).await.map_err(SendError::Broken)?;
                Ok(response.map(|body| Either::Right(Full::new(body))))
            }
        }
    }
}

impl SendError {
    fn of(error: legacy::Error) -> Self {
        // Its own text says only in which phase it happened.
        let mut cause = error.source();
        while let Some(error) = cause {
            if let Some(connect) = error.downcast_ref::<ConnectError>() {
                return Self::Connect(connect.clone());
            }
            cause = error.source();
        }
        Self::Broken(error.source().map_or_else(|| text(&error), text))
    }
}

fn text(error: &(dyn Error + 'static)) -> String {
    keepable(&outbox_event::chain::chain(error), 300)
}

/// A response's body on its way in, within the bounds of its request. The request counts as under way until this is dropped.
pub(super) struct ResponseBody {
    incoming: Either<Incoming, Full<Bytes>>,
    left: u64,
    most: u64,
    timeout: Duration,
    ends: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = SendError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, SendError>>> {
        // First, since an endless body is never pending.
        if self.ends.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(SendError::TimedOut(self.timeout))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.incoming).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                match self.left.checked_sub(bytes) {
                    Some(left) => {
                        self.left = left;
                        Some(Ok(frame))
                    }
                    None => Some(Err(SendError::TooLarge(self.most))),
                }
            }
            Some(Err(error)) => Some(Err(SendError::Broken(text(&*error)))),
            None => None,
        })
    }
}
