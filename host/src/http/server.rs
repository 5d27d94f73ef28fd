//! The socket: connections, their limits, and their end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tower_service::Service as _;

use super::guard::with_headers;
use super::host::Host;
use super::problem::{Kind, Problem};
use super::writing::TimedWrites;
use super::{ConfigFaults, HttpConfig, Listen};
use crate::outbox::Outbox;
use crate::store::SharedStore;

/// How long a stop waits for requests that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// The rest after the operating system gave no connection: it has none left just now.
const REST: Duration = Duration::from_millis(100);
/// The most bytes of the headers of one request: some CloudEvents carry much in them.
const MAX_HEADERS: usize = 64 << 10;

/// How much of an answer the operating system keeps for a client that has not read it. Left to itself it keeps megabytes, and a client
/// that follows the stream and never reads would be found out after hours.
const SEND_BUFFER: u32 = 64 << 10;
/// How many connections the operating system holds that were not accepted yet.
const BACKLOG: u32 = 1_024;

/// Why the HTTP API is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Values that make no sense or are unsafe, all of them.
    #[error(transparent)]
    Config(#[from] ConfigFaults),
    /// The address is taken, or not one of this machine.
    #[error("the HTTP API cannot listen on {address}: {why}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why, and what to do.
        why: &'static str,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

impl ServeError {
    /// Whether another program listens on the address.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Bind { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse)
    }
}

/// The addresses of the connection of a request.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    local: SocketAddr,
    remote: SocketAddr,
}

impl Peer {
    /// Where the client is, or a proxy that it comes by.
    pub(super) fn address(&self) -> std::net::IpAddr {
        self.remote.ip().to_canonical()
    }

    /// A connection to this address.
    #[cfg(test)]
    pub(super) fn made_up(local: &str) -> Self {
        let local = local.parse().expect("an address");
        Self { local, remote: local }
    }

    /// Whether the client is on this machine.
    pub(super) fn is_on_loopback(&self) -> bool {
        self.local.ip().to_canonical().is_loopback()
    }
}

/// Tells a handler that goes on and on, by an extension of its request, that the server stops.
#[derive(Clone, Debug)]
pub(super) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits until the server stops.
    pub(super) async fn wait(&mut self) {
        // An error is the end of the server as well.
        let _ = self.0.wait_for(|stopped| *stopped).await.map(drop);
    }
}

/// A listening socket that serves the HTTP API of an outbox.
///
/// From [`bind`](Self::bind) to [`serve`](Self::serve) it answers `GET /livez`, and everything else with 503. Dropped without a
/// [`shutdown`](Self::shutdown) it closes at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    config: HttpConfig,
    router: Arc<OnceLock<Router>>,
    stop: watch::Sender<bool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on the address of the configuration; `None` when it is off.
    ///
    /// # Errors
    /// When the configuration is not valid, such as an address that others can reach without a token; or when the address is taken.
    pub async fn bind(config: HttpConfig) -> Result<Option<Self>, ServeError> {
        config.check()?;
        let Listen::At(wanted) = config.listen else { return Ok(None) };
        let refused = |source: std::io::Error| {
            let why = match source.kind() {
                std::io::ErrorKind::AddrInUse => "another program listens there; stop it, or choose another address",
                std::io::ErrorKind::AddrNotAvailable => "it is no address of this machine; choose another one",
                std::io::ErrorKind::PermissionDenied => "this user may not; choose a port above 1023",
                _ => "the operating system refuses",
            };
            ServeError::Bind { address: wanted, why, source }
        };
        let listener = listen(wanted).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let (stop, stopped) = watch::channel(false);
        let router = Arc::new(OnceLock::new());
        let accepting = Accepting {
            listener,
            router: router.clone(),
            places: Arc::new(Semaphore::new(config.max_connections)),
            header_timeout: config.header_timeout,
            write_timeout: config.write_timeout,
            stopping: Stopping(stopped),
        };
        Ok(Some(Self { address, config, router, stop, accepting: Some(tokio::spawn(accepting.run())) }))
    }

    /// The address that it listens on, with the port that was chosen for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves this outbox from now on. A second call changes nothing.
    pub fn serve<S: SharedStore>(&self, outbox: &Outbox<S>) {
        // The configuration was checked when the socket was bound.
        let _ = self.router.set(super::of(Host::new(outbox, self.config.clone())));
    }

    /// Accepts no more connections, and waits for at most 5 s until the requests on those that are open are answered.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if let Some(accepting) = self.accepting.take()
            && let Err(error) = accepting.await
        {
            tracing::error!(%error, "the HTTP server did not end well");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }
}

struct Accepting {
    listener: TcpListener,
    router: Arc<OnceLock<Router>>,
    places: Arc<Semaphore>,
    header_timeout: Duration,
    write_timeout: Duration,
    stopping: Stopping,
}

impl Accepting {
    async fn run(self) {
        let mut connections = JoinSet::new();
        let mut stopping = self.stopping.clone();
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stopping.wait() => break,
            };
            match accepted {
                Some((stream, peer, place)) => {
                    let served = self.connection(stream, peer);
                    connections.spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                // As many as there may be, or files are short: without a rest this would be a busy loop.
                None => tokio::time::sleep(REST).await,
            }
        }
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ANSWERS, ended).await.is_err() {
            tracing::warn!("some HTTP requests were not answered within {LAST_ANSWERS:?}; their connections are closed");
        }
    }

    /// The next connection, and its place among those that there may be.
    async fn accept(&self) -> Option<(TcpStream, Peer, tokio::sync::OwnedSemaphorePermit)> {
        let place = self.places.clone().acquire_owned().await.ok()?;
        let accepted = self
            .listener
            .accept()
            .await
            .and_then(|(stream, remote)| Ok((Peer { local: stream.local_addr()?, remote }, stream)));
        match accepted {
            Ok((peer, stream)) => {
                // Answers are small and whole.
                let _ = stream.set_nodelay(true);
                Some((stream, peer, place))
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                None
            }
        }
    }

    fn connection(&self, stream: TcpStream, peer: Peer) -> impl Future<Output = ()> + Send + 'static {
        let (router, mut stopping) = (self.router.clone(), self.stopping.clone());
        let for_handlers = stopping.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(for_handlers.clone());
            let router = router.get().cloned();
            async move {
                match router {
                    Some(mut router) => router.call(request).await,
                    None => Ok::<_, Infallible>(while_starting(&request)),
                }
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(MAX_HEADERS)
            .serve_connection(TokioIo::new(TimedWrites::new(stream, self.write_timeout)), service);
        async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stopping.wait() => {
                    connection.as_mut().graceful_shutdown();
                    connection.as_mut().await
                }
            };
            // A client that goes away or is too slow is not worth a line.
            if let Err(error) = ended {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
        }
    }
}

/// As [`TcpListener::bind`], with a send buffer that the connections inherit.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Elsewhere than on Unix it would let two programs listen on one port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What is said before there is an outbox to serve.
fn while_starting(request: &Request<Incoming>) -> Response<Body> {
    if request.uri().path() == super::LIVEZ {
        return with_headers("ok\n".into_response());
    }
    with_headers(Problem::new(Kind::Starting, "the host is starting; it may be waiting for its database").into_response())
}
