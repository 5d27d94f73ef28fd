//! What a request carries of its connection, as extensions.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::sync::watch;

use super::problem::{Kind, Problem};

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

    async fn wait(&mut self) {
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

    /// Whether the server stops.
    pub(super) fn is_over(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// Tells a handler that changes many events to end after the batch that it is at: the server stops, or nobody waits for the answer.
#[derive(Debug, Default)]
pub(super) struct CutOff {
    stopping: Option<Stopping>,
    leaving: Option<Leaving>,
}

impl CutOff {
    /// Whether it is time to end.
    pub(super) fn is_over(&self) -> bool {
        self.stopping.as_ref().is_some_and(Stopping::is_over)
            || self.leaving.as_ref().is_some_and(|leaving| leaving.0.has_changed().is_err())
    }

    /// Of a client, for tests.
    #[cfg(test)]
    pub(super) fn of(leaving: Leaving) -> Self {
        Self { stopping: None, leaving: Some(leaving) }
    }

    /// For a change that has not begun.
    pub(super) fn problem() -> Problem {
        Problem::new(Kind::Stopping, "the host is stopping, or the client has gone; nothing was done")
    }

    /// Waits until it is time to end.
    pub(super) async fn wait(&mut self) {
        let stops = async {
            match &mut self.stopping {
                Some(stopping) => stopping.wait().await,
                None => pending().await,
            }
        };
        let leaves = async {
            match &mut self.leaving {
                Some(leaving) => leaving.wait().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = stops => {}
            () = leaves => {}
        }
    }
}

impl<S: Sync> FromRequestParts<S> for CutOff {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let (stopping, leaving) = (parts.extensions.get().cloned(), parts.extensions.get().cloned());
        Ok(Self { stopping, leaving })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handler_is_cut_off_when_its_client_leaves_or_the_server_stops() {
        let ((stays, leaving), (stop, stopped)) = (Leaving::new(), watch::channel(false));
        let mut cut_off = CutOff { stopping: Some(Stopping::new(stopped.clone())), leaving: Some(leaving.clone()) };
        assert!(!cut_off.is_over());
        stop.send_replace(true);
        assert!(cut_off.is_over());
        cut_off.wait().await;

        stop.send_replace(false);
        let mut cut_off = CutOff { stopping: Some(Stopping::new(stopped)), leaving: Some(leaving) };
        assert!(!cut_off.is_over());
        drop(stays);
        assert!(cut_off.is_over());
        cut_off.wait().await;
        let mounted = CutOff { stopping: None, leaving: None };
        assert!(!mounted.is_over(), "a router in somebody else's server");
    }
}
