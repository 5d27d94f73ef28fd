//! HTTP: a message as a POST, signed as Standard Webhooks says, raw or as a CloudEvent.
//!
//! A status of 2xx confirms the message. Redirects are not followed: they could lead into the operator's own network. `webhook-id`
//! and `Idempotency-Key` are the message's id, the same on every delivery, for receivers that remove duplicates.

mod answer;
mod config;
mod connector;
mod hidden;
mod receivers;
mod sign;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use ::http::{Request, Uri};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use outbox_event::time::{Clock, SystemClock};
use url::Url;

pub use config::{Format, HttpConfig};
use connector::{BoundedTcp, InTime};
use hidden::Hidden;
use receivers::Receivers;
use sign::Signer;

use super::batching::{Batch, Link};
use super::breaker::OpenBreakers;
use super::cloud_event::{CloudEvent, STRUCTURED};
use super::headers::{OWN, carried, encoded, folded, own, printable, token};
use super::kind::Kind;
use super::receiver::Receiver;
use super::rests::Rests;
use super::{Message, SinkError, tls};

/// The silence after which an HTTP/2 connection with open requests is tested by a ping, and the time within which the endpoint must
/// answer it. All requests share that connection, and a request that timed out leaves it open.
const SILENCE: Duration = Duration::from_secs(5);

/// The most bytes of a response's head over HTTP/1.1, and of the beginning of a body that a connection buffers.
const MAX_BUFFER: usize = 64 << 10;
/// The same for one response over HTTP/2.
const STREAM_WINDOW: u32 = 64 << 10;

/// An endpoint.
struct Http {
    config: HttpConfig,
    url: Url,
    /// The address as it may stand in an error.
    shown: String,
    /// What may not stand there, whoever says it.
    hidden: Hidden,
    signers: Vec<Signer>,
    headers: HeaderMap,
    /// The [`folded`] names of these headers.
    operators: HashSet<String>,
    client: Client<InTime, Full<Bytes>>,
    clock: Arc<dyn Clock>,
    receivers: Arc<Receivers>,
}

impl Http {
    fn new(name: &str, config: HttpConfig, rests: Rests) -> Result<Self, String> {
        let url: Url = config.url.trim().parse().map_err(|error| format!("url is not a valid address: {error}"))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some((config.timeout / 2).min(Duration::from_secs(5))));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client(config.ca_file.as_deref())?)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(BoundedTcp { tcp, max_in_flight: config.max_in_flight });
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(config.max_in_flight)
            .timer(TokioTimer::new())
            .http1_max_buf_size(MAX_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_keep_alive_interval(SILENCE)
            .http2_keep_alive_timeout(SILENCE)
            .build(InTime::new(connector, config.timeout));
        let mut headers: HeaderMap = config.headers().collect();
        let hidden = Hidden::of(&url, &headers);
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!("outbox/", env!("CARGO_PKG_VERSION"))));
        let operators = headers.keys().map(|name| folded(name.as_str())).collect();
        let signers = config.secrets.iter().filter_map(Signer::new).collect();
        let shown = config.target();
        let same = rests.get::<Receivers>().filter(|receivers| receivers.belong_to(&config));
        let receivers = same.unwrap_or_else(|| Arc::new(Receivers::new(name, &config)));
        Ok(Self { config, url, shown, hidden, signers, headers, operators, client, clock: Arc::new(SystemClock), receivers })
    }

    async fn post(&self, message: &Message, deadline: Instant) -> Result<(), SinkError> {
        let request = self.request(message)?;
        let answering = self.client.request(request);
        match tokio::time::timeout_at(deadline.into(), answering).await {
            Ok(Ok(answer)) => answer::meaning(answer, deadline, &self.shown, &self.hidden, self.clock.now()).await,
            Ok(Err(error)) => {
                let reason = format!("{}: {}", self.shown, tls::reason(&error, self.config.ca_file.as_deref()));
                Err(if error.is_connect() { SinkError::down(reason) } else { SinkError::unavailable(reason) })
            }
            Err(_) => Err(SinkError::unavailable(format!("{} did not answer within {:?}", self.shown, self.config.timeout))),
        }
    }

    fn request(&self, message: &Message) -> Result<Request<Full<Bytes>>, SinkError> {
        let (content_type, body) = match self.config.format {
            Format::CloudeventsStructured => (STRUCTURED, Bytes::from(CloudEvent::structured(message, &self.config.source)?)),
            Format::Raw | Format::CloudeventsBinary => (message.content_type.as_str(), message.body.clone()),
        };
        let mut headers = HeaderMap::new();
        let is_reserved = |name: &str| {
            let name = folded(name);
            steers(&name) || OWN.contains(&name.as_str()) || self.operators.contains(&name)
        };
        for (name, value) in carried(message, is_reserved) {
            put(&mut headers, &token(name), &printable(value));
        }
        for (name, value) in own(message) {
            put(&mut headers, name, &printable(&value));
        }
        if self.config.format == Format::CloudeventsBinary {
            attributes(&mut headers, message, &self.config.source)?;
        }
        headers.extend(self.headers.clone());
        put(&mut headers, CONTENT_TYPE.as_str(), &printable(content_type));
        put(&mut headers, "idempotency-key", &printable(&message.id));
        if !self.signers.is_empty() {
            self.sign(&mut headers, message, &body);
        }
        let mut request = Request::post(self.uri(message)?)
            .body(Full::new(body))
            .map_err(|error| SinkError::rejected(format!("no request can be made of the message: {error}")))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn sign(&self, headers: &mut HeaderMap, message: &Message, body: &[u8]) {
        let id = printable(&message.id);
        let timestamp = self.clock.now().as_micros() / 1_000_000;
        let signatures: Vec<String> = self.signers.iter().map(|signer| signer.sign(&id, timestamp, body)).collect();
        put(headers, "webhook-id", &id);
        put(headers, "webhook-timestamp", &timestamp.to_string());
        put(headers, "webhook-signature", &signatures.join(" "));
    }

    /// The address, with the path of this message below it.
    fn uri(&self, message: &Message) -> Result<Uri, SinkError> {
        let mut url = self.url.clone();
        if let Some(path) = self.path(message)? {
            url.set_path(&format!("{}/{}", self.url.path().trim_end_matches('/'), path));
        }
        url.set_fragment(None);
        url.as_str().parse().map_err(|_| SinkError::rejected("the message's path makes no address"))
    }

    /// The path of this message below the address; `None` if all messages go to the address itself.
    fn path(&self, message: &Message) -> Result<Option<String>, SinkError> {
        let Some(template) = &self.config.path else { return Ok(None) };
        let path =
            template.render(message, |value| encoded(value, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)));
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(SinkError::rejected("the message's path leads out of the address"));
        }
        Ok(Some(path.trim_start_matches('/').to_owned()))
    }
}

#[async_trait]
impl Link for Http {
    async fn send(&self, batch: &Batch, deadline: Instant) {
        for (index, message) in batch.messages().iter().enumerate() {
            batch.answer(index, self.post(message, deadline).await);
        }
    }

    fn receiver(&self, message: &Message) -> Result<Option<Arc<Receiver>>, SinkError> {
        Ok(Some(self.receivers.at(&self.path(message)?.unwrap_or_default())))
    }

    /// With a path, a receiver that is away is away for all hosts, and may get its messages from one of them.
    fn destination<'m>(&self, _message: &'m Message) -> Option<Cow<'m, str>> {
        self.config.path.is_none().then_some(Cow::Borrowed(""))
    }

    fn reaches_each_destination(&self) -> bool {
        true
    }

    /// Each message is a request of its own.
    fn is_ordered(&self) -> bool {
        false
    }

    fn open_breakers(&self) -> OpenBreakers {
        self.receivers.open_breakers()
    }

    fn rests(&self) -> Rests {
        Rests::new(self.receivers.clone())
    }
}

/// Whether a [`folded`] name controls a server, a proxy, a framework or a receiver of webhooks. Events may not set such headers.
fn steers(name: &str) -> bool {
    const STEERING: [&str; 35] = [
        "authorization",
        "cdn-loop",
        "client-ip",
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "expect",
        "fastly-client-ip",
        "forwarded",
        "host",
        "http2-settings",
        "idempotency-key",
        "keep-alive",
        "max-forwards",
        "origin",
        "range",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "true-client-ip",
        "upgrade",
        "via",
        "x-api-key",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-csrf-token",
        "x-forwarded",
        "x-host",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-real-ip",
        "x-requested-with",
    ];
    const PREFIXES: [&str; 22] = [
        "ce-",
        "cf-",
        "if-",
        "proxy-",
        "remote-",
        "sec-",
        "ssl-client-",
        "svix-",
        "webhook-",
        "x-amzn-",
        "x-auth-request-",
        "x-authenticated-",
        "x-envoy-",
        "x-forwarded-",
        "x-goog-",
        "x-hub-signature",
        "x-ms-client-principal",
        "x-original-",
        "x-remote-",
        "x-rewrite-",
        "x-ssl-",
        "x-webauth-",
    ];
    STEERING.contains(&name) || PREFIXES.into_iter().any(|prefix| name.starts_with(prefix))
}

/// Sets a header whose name and value were made safe before.
fn put(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
        headers.insert(name, value);
    }
}

/// The attributes of a CloudEvent as headers. Source: CloudEvents 1.0.2, HTTP binding, 3.1.3.2.
fn attributes(headers: &mut HeaderMap, message: &Message, source: &str) -> Result<(), SinkError> {
    let attributes = serde_json::to_value(CloudEvent::attributes(message, source));
    let attributes =
        attributes.map_err(|error| SinkError::rejected(format!("the message is not a valid CloudEvent: {error}")))?;
    for (name, value) in attributes.as_object().into_iter().flatten().filter(|(name, _)| *name != "datacontenttype") {
        let value = value.as_str().unwrap_or_default();
        put(headers, &format!("ce-{name}"), &encoded(value, |byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'%'));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
