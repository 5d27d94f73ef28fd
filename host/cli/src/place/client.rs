//! Requests to the HTTP API of a host. Redirects are not followed: they could take the token elsewhere.

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use outbox::deceptive::shown;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::refused::{Problem, Refused};
use crate::failure::{Exit, Failure};
use crate::remote::Remote;

/// How many bytes of an error about an answer are shown.
const MOST_SAID: usize = 400;
/// The longest that a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest that a host may take for an answer: it works for 25 s at most, and its database may make it wait.
pub(super) const ANSWER: Duration = Duration::from_secs(90);
/// The largest answer: a page of rows with large headers, or one row with the largest payload.
const MOST: usize = 128 << 20;

/// A client of one host.
pub(super) struct Client {
    remote: Remote,
    authorization: Option<HeaderValue>,
    connections: Connections<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    pub(super) fn new(remote: &Remote) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(Exit::Failed, "the system's certificates cannot be read, which https needs").because(error)
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(failed)?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let authorization = remote.token().map(|token| {
            let mut value: HeaderValue = format!("Bearer {token}").parse().expect("its characters were checked");
            value.set_sensitive(true);
            value
        });
        let connections = Connections::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { remote: remote.clone(), authorization, connections })
    }

    /// The address of the host.
    pub(super) fn base(&self) -> &str {
        self.remote.base()
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).expect("requests are plain data");
        self.send(Method::POST, path, body.into()).await
    }

    /// Sends JSON that is written already.
    pub(super) async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, Refused> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base()))
            .header(USER_AGENT, concat!("outbox/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.authorization {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.foreign("no request can be made", error))?;
        let exchange = async {
            let answer = self.connections.request(request).await.map_err(|error| self.unreachable(&error))?;
            self.read(answer).await
        };
        let late = || {
            let what = format!("the host at {} did not answer within {} s", self.base(), ANSWER.as_secs());
            Refused::Failure(Failure::new(Exit::Unreachable, what).passing())
        };
        tokio::time::timeout(ANSWER, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    async fn read<T: DeserializeOwned>(&self, answer: Response<Incoming>) -> Result<T, Refused> {
        let (head, body) = answer.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(body, MOST).collect().await;
        let body = body.map_err(|error| self.foreign("the answer was cut off", Text(error.to_string())).passing())?.to_bytes();
        if kind == "application/problem+json"
            && let Ok(problem) = serde_json::from_slice::<Problem>(&body)
        {
            return Err(Refused::Problem(problem));
        }
        if head.status.is_redirection() {
            let to = head.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another address");
            let what = format!(
                "{} redirects to {}, and redirects are not followed; give that address with --url",
                self.base(),
                shown(to)
            );
            return Err(Refused::Failure(Failure::new(Exit::Unreachable, what)));
        }
        if !head.status.is_success() || kind != "application/json" {
            return Err(self.not_a_host(head.status));
        }
        serde_json::from_slice(&body).map_err(|error| {
            self.foreign("this program does not know the form of its answer: host and program have different versions", error)
        })
    }

    /// Something answers that is no host of ours, or stands before one.
    fn not_a_host(&self, status: StatusCode) -> Refused {
        let what = format!("{} answers {status}, but not as an outbox host does", self.base());
        let fix =
            "check --url: it is what the host says after `listening on`, or the address of the proxy before it".to_owned();
        let refused = Refused::Failure(Failure::new(Exit::Unreachable, what).details(vec![fix]));
        // A proxy whose host is away, or does not answer in time.
        let is_passing =
            matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT);
        if is_passing { refused.passing() } else { refused }
    }

    fn foreign(&self, what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Refused {
        let what = format!("the host at {}: {what}", self.base());
        // It may repeat what the host has sent, of any length.
        let mut said = outbox::chain(&error).to_string();
        said.truncate(said.floor_char_boundary(MOST_SAID));
        Refused::Failure(Failure::new(Exit::Unreachable, what).because(Text(said)))
    }

    fn unreachable(&self, error: &hyper_util::client::legacy::Error) -> Refused {
        let (base, chain) = (self.base(), outbox::chain(error));
        let what = if error.is_connect() {
            format!("the host at {base} cannot be reached")
        } else {
            format!("the connection to the host at {base} was closed before it answered")
        };
        let fix = if chain.contains("certificate") || chain.contains("UnknownIssuer") {
            "this machine does not trust its certificate; if you use your own certificate authority, set SSL_CERT_FILE to \
             its file"
                .to_owned()
        } else if chain.contains("InvalidContentType") {
            "it answers without TLS: write --url http://… instead of https://…".to_owned()
        } else if chain.contains("invalid HTTP") {
            "it does not answer in HTTP; if it has TLS, write --url https://… instead of http://…".to_owned()
        } else if error.is_connect() {
            "start one with `outbox run --listen 127.0.0.1:8080`, or check --url".to_owned()
        } else {
            "check that --url names an outbox host; http and https are different. A change may have been made".to_owned()
        };
        let failure = Failure::new(Exit::Unreachable, what).because(Text(chain)).details(vec![fix]).passing();
        if error.is_connect() { Refused::Unsent(failure) } else { Refused::Failure(failure) }
    }
}

/// An error of which only the text is kept.
#[derive(Debug)]
struct Text(String);

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

impl std::error::Error for Text {}
