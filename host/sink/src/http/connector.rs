//! Connections to an endpoint.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::bounded::Bounded;

type Inner = HttpsConnector<BoundedTcp>;
type BoxError = Box<dyn Error + Send + Sync>;

/// The most bytes that an endpoint may send for one request: the head of a response, and what a connection reads ahead of its body.
const MAX_ANSWER: usize = 128 << 10;

/// Opens connections that limit what the endpoint sends. The limit is below TLS, whose client reads in a loop too.
#[derive(Clone)]
pub(super) struct BoundedTcp {
    pub(super) tcp: HttpConnector,
    /// How many requests may share a connection.
    pub(super) max_in_flight: usize,
}

impl Service<Uri> for BoundedTcp {
    type Response = TokioIo<Bounded<TcpStream>>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // Only TLS negotiates HTTP/2, whose requests share one connection.
        let requests = if uri.scheme_str() == Some("https") { self.max_in_flight } else { 1 };
        let connecting = self.tcp.call(uri);
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(Bounded::new(stream, MAX_ANSWER.saturating_mul(requests))))
        })
    }
}

impl Connection for Bounded<TcpStream> {
    fn connected(&self) -> Connected {
        self.get_ref().connected()
    }
}

/// Gives up connections that take too long, TLS included. When a request finds another connection first, the client continues to open the
/// one that it began, and no timeout of a request ends that: an endpoint that finishes no handshake would get more and more sockets.
#[derive(Clone)]
pub(super) struct InTime {
    connector: Inner,
    longest: Duration,
}

impl InTime {
    pub(super) fn new(connector: Inner, longest: Duration) -> Self {
        Self { connector, longest }
    }
}

impl Service<Uri> for InTime {
    type Response = <Inner as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.longest, self.connector.call(uri));
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "the connection and its TLS handshake took too long");
            connecting.await.unwrap_or_else(|_| Err(late().into()))
        })
    }
}
