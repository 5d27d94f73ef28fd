//! What a request carries of its connection, as extensions.

use std::net::SocketAddr;

use tokio::sync::watch;

/// The two ends of the connection that a request came by.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl Peer {
    /// The address of the client, or of the proxy in front of it.
    pub(super) fn address(&self) -> std::net::IpAddr {
        self.remote.ip().to_canonical()
    }

    /// A connection to this address, for tests.
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

/// Tells a handler that changes much that its client went away, and nobody waits for the answer.
#[derive(Clone, Debug)]
pub(super) struct Leaving(watch::Receiver<()>);

impl Leaving {
    /// The client has left once the other half is dropped.
    pub(super) fn new() -> (watch::Sender<()>, Self) {
        let (stays, leaving) = watch::channel(());
        (stays, Self(leaving))
    }

    /// Waits until the client has left.
    pub(super) async fn wait(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Tells a handler that answers for a long time, such as a stream, that the server stops.
#[derive(Clone, Debug)]
pub(super) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits for this channel to carry `true`, or to close.
    pub(super) fn new(stopped: watch::Receiver<bool>) -> Self {
        Self(stopped)
    }

    /// Waits until the server stops.
    pub(super) async fn wait(&mut self) {
        // An error is the end of the server as well.
        let _ = self.0.wait_for(|stopped| *stopped).await.map(drop);
    }
}
