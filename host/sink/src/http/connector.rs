//! Connections to an endpoint.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

type Inner = HttpsConnector<HttpConnector>;
type BoxError = Box<dyn Error + Send + Sync>;

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
