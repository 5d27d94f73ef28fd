//! The listening socket, and the server behind it.

mod activity;
mod connections;
mod timed_writes;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use outbox::Outbox;
use outbox_store::SharedStore;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::host::Host;
use super::peer::Stopping;
use super::{ConfigFaults, HttpConfig, Listen};
use connections::Connections;

/// How much of an answer the operating system keeps for a client that has not read it. Left to itself it keeps megabytes, and a
/// client that follows the stream and never reads would be found out after hours.
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
                std::io::ErrorKind::AddrNotAvailable => "it is not an address of this machine; choose another one",
                std::io::ErrorKind::PermissionDenied => "this user may not use this port; choose one above 1023",
                _ => "the operating system refuses",
            };
            ServeError::Bind { address: wanted, why, source }
        };
        let listener = listen(wanted).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let (stop, stopped) = watch::channel(false);
        let router = Arc::new(OnceLock::new());
        let connections = Connections::new(listener, router.clone(), &config, Stopping::new(stopped));
        Ok(Some(Self { address, config, router, stop, accepting: Some(tokio::spawn(connections.serve())) }))
    }

    /// The address that it listens on, with the port that was chosen for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves this outbox from now on. A second call changes nothing.
    pub fn serve<S: SharedStore>(&self, outbox: &Outbox<S>) {
        // The configuration was checked when the socket was bound.
        let _ = self.router.set(super::router::routes(Host::new(outbox, self.config.clone())));
    }

    /// Accepts no more connections, and waits for at most 5 s until the requests on those that are open are answered.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if let Some(accepting) = self.accepting.take()
            && let Err(error) = accepting.await
        {
            tracing::error!(target: "outbox::http::server", %error, "the HTTP server did not end well");
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
