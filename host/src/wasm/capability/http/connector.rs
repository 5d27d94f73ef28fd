//! Makes connections: a name is resolved once, every address is looked at, and the connection goes to that very address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::address::is_public;
use crate::wasm::manifest::Http;

/// The longest that a connection may take, all addresses of its host together.
const CONNECT: Duration = Duration::from_secs(5);
/// The most addresses of one host that are tried.
const MAX_ADDRESSES: usize = 4;

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{host} could not be resolved: {reason}")]
    Resolve { host: String, reason: String },
    #[error("{host} is at an address that is not public")]
    Private { host: String, address: IpAddr },
    #[error("no connection to {host}: {reason}")]
    Connect { host: String, reason: String },
}

/// Finds the addresses of a host. One for all plugins; another one in tests.
pub(in crate::wasm) trait Resolver: Send + Sync + 'static {
    /// All addresses of a host, best first.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
pub(in crate::wasm) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Connects to what one plugin may connect to.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) grant: Arc<Http>,
    pub(super) resolver: Arc<dyn Resolver>,
}

impl Service<http::Uri> for Connector {
    type Response = TokioIo<TcpStream>;
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
            tokio::time::timeout(CONNECT, connector.connect(&host, port)).await.unwrap_or_else(|_| Err(late()))
        })
    }
}

impl Connector {
    async fn connect(&self, host: &str, port: u16) -> Result<TokioIo<TcpStream>, ConnectError> {
        let mut addresses = self.addresses(host, port).await?;
        addresses.truncate(MAX_ADDRESSES);
        let each = CONNECT / u32::try_from(addresses.len().max(1)).unwrap_or(1);
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match tokio::time::timeout(each, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Requests are written whole; waiting for more only delays them. Without it they arrive all the same.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(error)) => failed = error,
                Err(_) => failed = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(ConnectError::Connect { host: host.to_owned(), reason: failed.to_string() })
    }

    /// The addresses of a host that may be connected to; an error when there are only others.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
        let resolved = self.resolver.resolve(host.to_owned(), port).await;
        let resolved = resolved.map_err(|error| ConnectError::Resolve { host: host.to_owned(), reason: error.to_string() })?;
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
