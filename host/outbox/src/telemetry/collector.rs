//! Sends OTLP requests to one collector: HTTP with protobuf, over kept connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::RngExt;
use tokio::time::Instant;

use super::config::CollectorConfig;
use crate::sink::tls;
use crate::text::keepable;

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// The silence after which an HTTP/2 connection with an open request is tested by a ping, and the time within which the collector must
/// answer it. A request that timed out leaves the connection open for the next one.
const SILENCE: Duration = Duration::from_secs(5);
/// The most bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// The most of a response that is logged.
const MAX_TOLD: usize = 200;
/// The rest before the second try; each later one is twice as long.
const FIRST_REST: Duration = Duration::from_millis(500);

/// Why a collector did not take what was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it has not answered within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    #[error("it answered {status}{told}")]
    Refused { status: StatusCode, told: String, retry_after: Option<Duration> },
}

impl SendError {
    /// Whether the same request may succeed later. Source: the specification of OTLP/HTTP, retryable response codes.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::TimedOut(_) => false,
            Self::Refused { status, .. } => matches!(status.as_u16(), 429 | 502..=504),
        }
    }
}

/// One collector.
pub(super) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    headers: HeaderMap,
    timeout: Duration,
}

impl Collector {
    /// Connects when there is something to send. The configuration has no [faults](super::TelemetryConfig::faults).
    pub(super) fn new(config: &CollectorConfig) -> Result<Self, String> {
        let tls = tls::client(config.ca_file.as_deref())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(config.timeout));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(SILENCE)
            .http2_keep_alive_timeout(SILENCE)
            .build(https);
        let url: Uri = config.url.trim().parse().map_err(|error| format!("the endpoint is not a valid address: {error}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            if let (Ok(name), Ok(mut value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value.reveal())) {
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("outbox/", env!("CARGO_PKG_VERSION"), " OTLP");
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(Self { client, url, headers, timeout: config.timeout })
    }

    /// Where it is, for a log line: nothing that could be a key.
    pub(super) fn shown(&self) -> String {
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        format!("{}://{authority}{}", self.url.scheme_str().unwrap_or("http"), self.url.path())
    }

    /// Sends a request, and repeats it if that may help, until the timeout is over. Returns the OTLP response.
    pub(super) async fn send(&self, body: Bytes) -> Result<Bytes, SendError> {
        let ends = Instant::now() + self.timeout;
        let mut rest = FIRST_REST;
        loop {
            let answer = tokio::time::timeout_at(ends, self.send_once(body.clone())).await;
            let error = match answer.unwrap_or(Err(SendError::TimedOut(self.timeout))) {
                Err(error) if error.may_pass() => error,
                answer => return answer,
            };
            let asked = match &error {
                SendError::Refused { retry_after, .. } => *retry_after,
                _ => None,
            };
            // Varied, so that hosts do not all come back at once.
            let pause = asked.unwrap_or_else(|| rest.mul_f64(rand::rng().random_range(0.5..1.5)));
            if ends.saturating_duration_since(Instant::now()) <= pause {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            rest *= 2;
        }
    }

    async fn send_once(&self, body: Bytes) -> Result<Bytes, SendError> {
        let mut request = Request::post(self.url.clone()).body(Full::new(body)).expect("an address that was parsed");
        *request.headers_mut() = self.headers.clone();
        let unreachable = |error: &dyn std::error::Error| SendError::Unreachable(crate::chain(error));
        let answer = self.client.request(request).await.map_err(|error| unreachable(&error))?;
        let (head, body) = answer.into_parts();
        let read = Limited::new(body, MAX_ANSWER).collect().await.map(|body| body.to_bytes());
        if head.status.is_success() {
            // The data was accepted, even if the response cannot be read.
            return Ok(read.unwrap_or_default());
        }
        let told = read.ok().filter(|told| !told.is_empty() && is_text(&head.headers));
        let told = told.map_or_else(String::new, |told| format!(": {}", keepable(&String::from_utf8_lossy(&told), MAX_TOLD)));
        Err(SendError::Refused { status: head.status, told, retry_after: retry_after(&head.headers) })
    }
}

/// Whether a response is text; errors in protobuf are of no use in a log line.
fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/plain") || kind.starts_with("application/json")
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Logs once that a collector fails, and once that it works again.
pub(super) struct Told {
    collector: Arc<Collector>,
    what: &'static str,
    failing: bool,
}

impl Told {
    pub(super) fn new(collector: Arc<Collector>, what: &'static str) -> Self {
        Self { collector, what, failing: false }
    }

    /// Takes in how an export went.
    pub(super) fn note(&mut self, result: Result<(), &str>) {
        let what = self.what;
        match result {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(endpoint = self.collector.shown(), "the collector takes {what} again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        endpoint = self.collector.shown(),
                        error,
                        "the collector does not take {what}; they are dropped until it does, and deliveries go on"
                    );
                }
            }
        }
    }
}
