//! The connections of a server: how many there are, which one makes room for another, and their end.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tower_service::Service as _;

use super::super::HttpConfig;
use super::super::guard::with_headers;
use super::super::peer::{Peer, Stopping};
use super::super::problem::{Kind, Problem};
use super::activity::{Activity, WatchedBody};
use super::timed_writes::TimedWrites;

/// How long a stop waits for requests that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long a client may do nothing before its connection makes room for another.
const GRACE: Duration = Duration::from_secs(1);
/// Where there has been no room for longer than [`GRACE`], how long a new client waits before another connection is closed for it.
/// So each client has this long, times the most connections, to send its request.
const TURN: Duration = Duration::from_millis(10);
/// The rest after the operating system gave no connection.
const REST: Duration = Duration::from_millis(100);
/// The most bytes of the headers of one request: some CloudEvents carry much in them.
const MAX_HEADERS: usize = 64 << 10;

/// Accepts connections and serves them.
pub(crate) struct Connections {
    listener: TcpListener,
    router: Arc<OnceLock<Router>>,
    most: usize,
    header_timeout: Duration,
    write_timeout: Duration,
    stopping: Stopping,
    tasks: JoinSet<()>,
    open: HashMap<Id, (Arc<Activity>, AbortHandle)>,
    /// Since when there has been no room for whoever came.
    crowded: Option<Instant>,
}

impl Connections {
    /// Until the router is set, `GET /livez` alone is answered.
    pub(crate) fn new(listener: TcpListener, router: Arc<OnceLock<Router>>, config: &HttpConfig, stopping: Stopping) -> Self {
        Self {
            listener,
            router,
            most: config.max_connections,
            header_timeout: config.header_timeout,
            write_timeout: config.write_timeout,
            stopping,
            tasks: JoinSet::new(),
            open: HashMap::new(),
            crowded: None,
        }
    }

    /// Serves until the server stops, and the last requests to their end.
    pub(crate) async fn serve(mut self) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = self.accept_all() => {}
            () = stopping.wait() => {}
        }
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ANSWERS, ended).await.is_err() {
            tracing::warn!(
                target: "outbox::http::server::connections",
                "some HTTP requests were not answered within {LAST_ANSWERS:?}; their connections are closed"
            );
        }
    }

    async fn accept_all(&mut self) {
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener) => accepted,
                Some(ended) = self.tasks.join_next_with_id() => {
                    self.forget(&ended);
                    continue;
                }
            };
            let Some((stream, peer)) = accepted else {
                // Files are short just now: without a rest this would be a busy loop.
                tokio::time::sleep(REST).await;
                continue;
            };
            self.make_room().await;
            let activity = Arc::new(Activity::new());
            let served = self.connection(stream, peer, activity.clone());
            let handle = self.tasks.spawn(served);
            self.open.insert(handle.id(), (activity, handle));
        }
    }

    /// Waits until one connection more may be served. Whoever is idle or slow makes room, so that nobody keeps probes away by
    /// holding connections; requests that the host works on are waited for. Whoever has just come, or has just been answered,
    /// is closed only when that goes on for long: clients that move now and then must not keep everybody else away either, however
    /// many of them come back.
    async fn make_room(&mut self) {
        if self.open.len() < self.most {
            self.crowded = None;
            return;
        }
        let (came, since) = (Instant::now(), *self.crowded.get_or_insert_with(Instant::now));
        while self.open.len() >= self.most {
            let idle = self.open.values().filter_map(|(activity, handle)| Some((activity.idle_for()?, handle)));
            if let Some((idle, longest)) = idle.max_by_key(|(idle, _)| *idle)
                && (idle >= GRACE || since.elapsed() >= GRACE && came.elapsed() >= TURN)
            {
                longest.abort();
            }
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => self.forget(&ended),
                () = tokio::time::sleep(TURN) => {}
            }
        }
    }

    fn forget(&mut self, ended: &Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        self.open.remove(&id);
    }

    fn connection(&self, stream: TcpStream, peer: Peer, activity: Arc<Activity>) -> impl Future<Output = ()> + Send + use<> {
        let (router, mut stopping) = (self.router.clone(), self.stopping.clone());
        let for_handlers = stopping.clone();
        let stream = TimedWrites::new(stream, self.write_timeout, activity.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let activity = activity.clone();
            let mut request = request.map(|body| WatchedBody::new(body, activity.clone()));
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(for_handlers.clone());
            let router = router.get().cloned();
            async move {
                let answer = match router {
                    Some(mut router) => router.call(request).await,
                    None => Ok::<_, Infallible>(while_starting(request.uri().path())),
                };
                activity.answered();
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
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
                tracing::debug!(target: "outbox::http::server::connections", %error, "an HTTP connection ended early");
            }
        }
    }
}

/// The next connection; `None` when the operating system has none to give.
async fn accept(listener: &TcpListener) -> Option<(TcpStream, Peer)> {
    let accepted =
        listener.accept().await.and_then(|(stream, remote)| Ok((Peer { local: stream.local_addr()?, remote }, stream)));
    match accepted {
        Ok((peer, stream)) => {
            // Answers are small and whole.
            let _ = stream.set_nodelay(true);
            Some((stream, peer))
        }
        Err(error) => {
            tracing::debug!(target: "outbox::http::server::connections", %error, "a connection could not be accepted");
            None
        }
    }
}

/// What is said before there is an outbox to serve.
fn while_starting(path: &str) -> Response<Body> {
    if path == crate::paths::LIVEZ {
        return with_headers("ok\n".into_response());
    }
    with_headers(Problem::new(Kind::Starting, "the host is starting; it may be waiting for its database").into_response())
}
