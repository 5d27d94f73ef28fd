//! Makes connections: a name is resolved once, every address is looked at, and the connection goes to that very address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use outbox_sink::bounded::Bounded;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::address::is_public;
use super::lookups::{LookupError, OwnLookups};
use crate::manifest::Http;

/// The longest that a connection may take, all addresses of its host together.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest that one waits for what only the host has too little of: sockets, and turns for look-ups. Far below the deadline
/// of a call, whose guest is told.
const LINE: Duration = Duration::from_millis(1_500);
/// The most addresses of one host that are tried.
const MAX_ADDRESSES: usize = 4;
/// The most bytes of a response beside its body: its head, and what a connection reads ahead.
const MAX_OVERHEAD: usize = 64 << 10;

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{host} could not be resolved: {reason}")]
    Resolve { host: String, reason: String },
    #[error("{host} is at an address that is not public")]
    Private { host: String, address: IpAddr },
    #[error("no connection to {host}: {reason}")]
    Connect { host: String, reason: String },
    /// The host had no room to try.
    #[error("no connection to {host} was tried: {reason}")]
    Busy { host: String, reason: &'static str },
}

/// Connects to what one plugin may connect to.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) grant: Arc<Http>,
    pub(super) lookups: Arc<OwnLookups>,
    /// One for each open connection.
    pub(super) sockets: Arc<Semaphore>,
}

/// An open connection, counted as long as it is there.
pub(super) struct Socket {
    stream: TokioIo<Bounded<TcpStream>>,
    _counted: OwnedSemaphorePermit,
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        self.stream.inner().get_ref().connected()
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A connector that is given up when it takes too long, TLS included: a client goes on connecting in the background after whoever
/// wanted the connection has found another.
#[derive(Clone)]
pub(super) struct InTime<C> {
    pub(super) connector: C,
    pub(super) longest: Duration,
}

impl<C> Service<http::Uri> for InTime<C>
where
    C: Service<http::Uri, Error = Box<dyn std::error::Error + Send + Sync>>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, url: http::Uri) -> Self::Future {
        let host = url.host().unwrap_or_default().to_owned();
        let connecting = tokio::time::timeout(self.longest, self.connector.call(url));
        Box::pin(async move {
            let late = || ConnectError::Connect { host, reason: "it took too long".to_owned() };
            connecting.await.unwrap_or_else(|_| Err(Box::new(late())))
        })
    }
}

impl Service<http::Uri> for Connector {
    type Response = Socket;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: http::Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
            let late = || ConnectError::Connect { host: host.clone(), reason: "it took too long".to_owned() };
            // Only TLS negotiates HTTP/2, whose requests share one connection.
            let requests = if url.scheme_str() == Some("https") { connector.grant.concurrency } else { 1 };
            let connecting = connector.connect(&host, port, connector.max_read(requests));
            tokio::time::timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(late()))
        })
    }
}

impl Connector {
    /// The most bytes that a connection may receive after a request, if `requests` may share it. Chunks of 6 bytes take at most twice
    /// the space of their body. Over HTTP/2, no window is larger than `MAX_OVERHEAD`, and each update of it is a write.
    fn max_read(&self, requests: usize) -> usize {
        let body = usize::try_from(self.grant.max_response.0).unwrap_or(usize::MAX);
        body.saturating_mul(2).saturating_add(MAX_OVERHEAD.saturating_mul(requests))
    }

    async fn connect(&self, host: &str, port: u16, max_read: usize) -> Result<Socket, ConnectError> {
        let line_ends = Instant::now() + LINE;
        // Connections that nobody uses are closed after a while.
        let counted = timeout_at(line_ends, self.sockets.clone().acquire_owned()).await;
        let busy = |reason| ConnectError::Busy { host: host.to_owned(), reason };
        let counted = counted.map_err(|_| busy("this plugin has all the connections that it may have"))?.expect("never closed");
        let mut addresses = self.addresses(host, port, line_ends).await?;
        addresses.truncate(MAX_ADDRESSES);
        let each = CONNECT / u32::try_from(addresses.len().max(1)).unwrap_or(1);
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match tokio::time::timeout(each, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Requests are written whole; waiting for more only delays them. Without it they arrive all the same.
                    let _ = stream.set_nodelay(true);
                    let stream = TokioIo::new(Bounded::new(stream, max_read));
                    return Ok(Socket { stream, _counted: counted });
                }
                Ok(Err(error)) => failed = error,
                Err(_) => failed = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(ConnectError::Connect { host: host.to_owned(), reason: failed.to_string() })
    }

    /// The addresses of a host that may be connected to; an error when there are only others.
    async fn addresses(&self, host: &str, port: u16, line_ends: Instant) -> Result<Vec<SocketAddr>, ConnectError> {
        let resolved = self.lookups.find(host, port, line_ends).await.map_err(|error| match error {
            LookupError::NoTurn => {
                ConnectError::Busy { host: host.to_owned(), reason: "look-ups of other names had not ended in time" }
            }
            LookupError::Failed(reason) => ConnectError::Resolve { host: host.to_owned(), reason },
        })?;
        let (fine, refused): (Vec<SocketAddr>, Vec<SocketAddr>) = resolved.into_iter().partition(|address| {
            // One that is written as the other is looked at as what it is.
            let address = address.ip().to_canonical();
            is_public(address) || self.grant.allows_private(address)
        });
        match refused.first() {
            Some(refused) if fine.is_empty() => {
                Err(ConnectError::Private { host: host.to_owned(), address: refused.ip().to_canonical() })
            }
            _ => Ok(fine),
        }
    }
}
