//! NATS: a message for a stream of JetStream, which answers when it has kept it.
//!
//! A publish to JetStream is a request: the stream that takes the subject answers with the message's number. The stream removes
//! duplicates by `Nats-Msg-Id` within its duplicate window.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Request, RequestErrorKind};
use async_trait::async_trait;
use futures_util::future::join_all;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, watch};
use url::Url;

use super::batching::{Limits, Link};
use super::config::{TIMEOUT, any_subject};
use super::error::quoted;
use super::headers::{carried, own, printable, token};
use super::{Message, Secret, SinkError, Template, target, tls};
use crate::units::duration;

pub(super) const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: 4 };

const SCHEMES: [&str; 2] = ["nats", "tls"];

/// A connection to NATS whose messages a stream of JetStream must keep.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsConfig {
    /// Where the servers are: `nats://host:4222`, or `tls://host:4222` for TLS alone; several with commas. Required. User and
    /// password, or a token, may stand before an `@` in the first.
    pub url: String,
    /// The user; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A token; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The text of a file of credentials (`.creds`), as `"${file:PATH}"`; `None` for none. Needs the feature `sink-nats-nkeys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Secret>,
    /// The seed of an NKey (`SU…`); `None` for none. Needs the feature `sink-nats-nkeys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<Secret>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The subject of a message that has none. Default `{aggregate_type}.{event_type}`. In what an event says, spaces, `.`, `*`
    /// and `>` become `_`.
    pub subject: Template,
    /// Which subjects a message may choose for itself, as patterns. Default any; but never one that begins with `$`.
    pub subjects: Vec<String>,
    /// The time within which the stream must have answered. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            user: None,
            password: None,
            token: None,
            credentials: None,
            nkey: None,
            ca_file: None,
            subject: "{aggregate_type}.{event_type}".parse().expect("a template of ours"),
            subjects: any_subject(),
            timeout: TIMEOUT,
        }
    }
}

impl NatsConfig {
    pub(super) fn target(&self) -> String {
        target::shown(&self.url)
    }

    pub(super) fn faults(&self, prefix: &str) -> Vec<String> {
        let urls = self.url.split(',');
        let mut faults: Vec<_> = urls.filter_map(|url| target::fault(&format!("{prefix}.url"), url, &SCHEMES)).collect();
        faults.extend(tls::fault(&format!("{prefix}.ca_file"), self.ca_file.as_deref()));
        if self.password.is_some() && self.user.is_none() {
            faults.push(format!("{prefix}.password is set, but {prefix}.user is not; set both"));
        }
        let ways = [self.user.is_some(), self.token.is_some(), self.credentials.is_some(), self.nkey.is_some()];
        if ways.into_iter().filter(|set| *set).count() > 1 {
            faults.push(format!("{prefix} has more than one of user, token, credentials and nkey; keep one"));
        }
        if !cfg!(feature = "sink-nats-nkeys") && (self.credentials.is_some() || self.nkey.is_some()) {
            faults
                .push(format!("{prefix}: credentials and nkey need an outbox that is built with the feature sink-nats-nkeys"));
        }
        if self.subject.as_str().is_empty() || self.subject.literals().any(|text| text.chars().any(is_no_token)) {
            faults.push(format!(
                "{prefix}.subject is `{}`; a subject to publish to has no spaces, `*` and `>`",
                quoted(self.subject.as_str())
            ));
        }
        faults
    }

    fn options(&self) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new();
        let (user, password, token) = self.of_url();
        if let Some(user) = self.user.clone().or(user) {
            let password = self.password.as_ref().map(|password| password.reveal().to_owned()).or(password);
            options = options.user_and_password(user, password.unwrap_or_default());
        } else if let Some(token) = token {
            options = options.token(token);
        }
        if let Some(token) = &self.token {
            options = options.token(token.reveal().to_owned());
        }
        #[cfg(feature = "sink-nats-nkeys")]
        {
            if let Some(seed) = &self.nkey {
                options = options.nkey(seed.reveal().to_owned());
            }
            if let Some(text) = &self.credentials {
                // Whatever is wrong with them may repeat them.
                options =
                    options.credentials(text.reveal()).map_err(|_| "the credentials are not a file of NATS".to_owned())?;
            }
        }
        Ok(options.tls_client_config(tls::client(self.ca_file.as_deref())?))
    }
}

impl NatsConfig {
    /// User and password in the first address, or a token: the part before the `@` when there is no colon in it. The client does
    /// not heed them.
    fn of_url(&self) -> (Option<String>, Option<String>, Option<String>) {
        let Ok(url) = self.url.split(',').next().unwrap_or_default().trim().parse::<Url>() else { return (None, None, None) };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match (url.username(), url.password()) {
            ("", _) => (None, None, None),
            (user, Some(password)) => (Some(decoded(user)), Some(decoded(password)), None),
            (token, None) => (None, None, Some(decoded(token))),
        }
    }
}

/// What no subject to publish to may hold. A dot may stand in the operator's text.
fn is_no_token(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '*' | '>')
}

/// What an event says, as one token of a subject.
fn clean(value: &str) -> String {
    value.chars().map(|c| if is_no_token(c) || c == '.' { '_' } else { c }).collect()
}

/// A connection to NATS.
pub(super) struct Nats {
    name: String,
    config: NatsConfig,
    /// Held while one batch connects: the others wait for it, since they need the same.
    connecting: AsyncMutex<()>,
    connected: Mutex<Option<Connected>>,
}

#[derive(Clone)]
struct Connected {
    client: Client,
    /// Becomes true when the connection is gone. This client is not used again then: it would keep messages for a server that
    /// may never come back, and answers to what was sent would never come.
    lost: watch::Receiver<bool>,
}

impl Nats {
    pub(super) fn new(name: &str, config: NatsConfig) -> Result<Self, String> {
        config.options()?;
        Ok(Self { name: name.to_owned(), config, connecting: AsyncMutex::default(), connected: Mutex::default() })
    }

    fn current(&self) -> Option<Connected> {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        connected.filter(|connected| !*connected.lost.borrow())
    }

    async fn connect(&self) -> Result<Connected, SinkError> {
        let _one = self.connecting.lock().await;
        if let Some(connected) = self.current() {
            return Ok(connected);
        }
        let (is_lost, lost) = watch::channel(false);
        let options = self.config.options().map_err(SinkError::down)?;
        let options = options
            .name(format!("outbox {}", self.name))
            .connection_timeout(self.config.timeout.min(Duration::from_secs(5)))
            .ping_interval(Duration::from_secs(5))
            .max_reconnects(1)
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected | Event::Closed | Event::LameDuckMode) {
                    is_lost.send_replace(true);
                }
                std::future::ready(())
            });
        let urls: Vec<&str> = self.config.url.split(',').map(str::trim).collect();
        let client = options.connect(urls.as_slice()).await;
        let client = client.map_err(|error| {
            SinkError::down(format!(
                "NATS at {} cannot be connected to: {}",
                self.config.target(),
                quoted(&crate::chain(&error))
            ))
        })?;
        let connected = Connected { client, lost };
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner) = Some(connected.clone());
        Ok(connected)
    }

    async fn publish(&self, connected: &Connected, message: &Message, deadline: Instant) -> Result<(), SinkError> {
        let subject = self.subject(message)?;
        let request = Request::new().payload(message.body.clone()).headers(headers(message)).timeout(None);
        let mut lost = connected.lost.clone();
        let answer = tokio::select! {
            answer = connected.client.send_request(subject.clone(), request) => answer,
            _ = lost.wait_for(|lost| *lost) => return Err(self.lost()),
            () = tokio::time::sleep_until(deadline.into()) => return Err(Self::unanswered(&subject)),
        };
        match answer {
            Ok(answer) => kept(&answer.payload, &subject),
            Err(error) => Err(match error.kind() {
                // Also what a cluster says for as long as it has no leader for the stream.
                RequestErrorKind::NoResponders => SinkError::unavailable(format!(
                    "no stream of JetStream takes the subject {}, or JetStream is not available there",
                    quoted(&subject)
                )),
                RequestErrorKind::InvalidSubject => SinkError::rejected(format!("`{}` is no subject", quoted(&subject))),
                RequestErrorKind::MaxPayloadExceeded => {
                    SinkError::rejected(format!("the message is larger than the server takes ({} bytes)", message.body.len()))
                }
                RequestErrorKind::TimedOut => Self::unanswered(&subject),
                RequestErrorKind::Other => self.lost(),
            }),
        }
    }

    fn subject(&self, message: &Message) -> Result<String, SinkError> {
        let subject = message.subject_or(&self.config.subject, clean);
        // `$JS.API.…` deletes streams, `$SYS.…` steers the server; inboxes are where others wait for answers.
        let is_kept_back = subject.starts_with('$') || subject.starts_with("_INBOX.");
        if is_kept_back && !message.subject.is_empty() && !message.trusts_subject {
            return Err(SinkError::rejected(format!(
                "the subject {} is NATS's own; no message may choose it",
                quoted(&subject)
            )));
        }
        if subject.chars().any(is_no_token) || subject.split('.').any(str::is_empty) {
            return Err(SinkError::rejected(format!("`{}` is no subject to publish to", quoted(&subject))));
        }
        Ok(subject.into_owned())
    }

    fn lost(&self) -> SinkError {
        SinkError::down(format!("the connection to NATS at {} was lost", self.config.target()))
    }

    /// The connection is well, and nobody says anything of this message: others may fare better.
    fn unanswered(subject: &str) -> SinkError {
        SinkError::unavailable(format!(
            "no stream of JetStream confirmed the subject {}: perhaps none takes it, or this user may not publish there",
            quoted(subject)
        ))
    }

    fn silent(&self) -> SinkError {
        SinkError::down(format!("NATS at {} does not answer", self.config.target()))
    }
}

#[async_trait]
impl Link for Nats {
    async fn send(&self, messages: &[Message], deadline: Instant) -> Vec<Result<(), SinkError>> {
        let connecting = async {
            match self.current() {
                Some(connected) => Ok(connected),
                None => self.connect().await,
            }
        };
        let connected = match tokio::time::timeout_at(deadline.into(), connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return vec![Err(error); messages.len()],
            Err(_) => return vec![Err(self.silent()); messages.len()],
        };
        join_all(messages.iter().map(|message| self.publish(&connected, message, deadline))).await
    }

    fn cut_off(&self) {
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The message's headers. Those that begin with `Nats-` are orders to the server, such as to delete what a stream holds.
fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (token(name).parse::<HeaderName>(), printable(value).parse::<HeaderValue>()) {
            headers.append(name, value);
        }
    };
    for (name, value) in carried(message, |name| name.starts_with("nats-")) {
        put(name, value);
    }
    for (name, value) in own(message) {
        put(name, &value);
    }
    put("content-type", &message.content_type);
    put("Nats-Msg-Id", &message.id);
    headers
}

/// What a stream answers. Source: NATS, io.nats.jetstream.api.v1.pub_ack_response.
#[derive(Deserialize)]
struct Ack {
    stream: Option<String>,
    error: Option<AckError>,
}

#[derive(Deserialize)]
struct AckError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    description: String,
}

fn kept(answer: &[u8], subject: &str) -> Result<(), SinkError> {
    match serde_json::from_slice(answer) {
        Ok(Ack { error: Some(AckError { code, description }), .. }) => {
            let reason = format!("JetStream refused the message ({code}): {}", quoted(&description));
            // 400: the message breaks a rule of the stream. All else may pass: no space, no leader.
            Err(if code == 400 { SinkError::rejected(reason) } else { SinkError::unavailable(reason) })
        }
        Ok(Ack { stream: Some(_), error: None }) => Ok(()),
        _ => Err(SinkError::unavailable(format!(
            "what answers on the subject {} is no stream of JetStream; make one that takes it",
            quoted(subject)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_of_a_stream_confirms_a_message() {
        assert_eq!(kept(br#"{"stream":"ORDERS","seq":7}"#, "a"), Ok(()));
        assert_eq!(kept(br#"{"stream":"ORDERS","seq":7,"duplicate":true}"#, "a"), Ok(()));
        for no_stream in [&b"{}"[..], b"ok", b"", b"{\"seq\":1}"] {
            assert!(matches!(kept(no_stream, "a"), Err(SinkError::Unavailable { .. })), "{no_stream:?}");
        }
        let too_large =
            br#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"S"}"#;
        assert!(matches!(kept(too_large, "a"), Err(SinkError::Rejected { .. })));
        let full = br#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S"}"#;
        assert!(matches!(kept(full, "a"), Err(SinkError::Unavailable { .. })));
    }

    #[test]
    fn credentials_may_stand_in_the_address() {
        let of = |url: &str| NatsConfig { url: url.to_owned(), ..NatsConfig::default() }.of_url();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("nats://app:p%40ss@a, nats://b"), (some("app"), some("p@ss"), None));
        assert_eq!(of("tls://t0ken@a"), (None, None, some("t0ken")));
        assert_eq!(of("nats://a"), (None, None, None));
    }

    #[test]
    fn what_an_event_says_is_one_token_of_a_subject() {
        assert_eq!(clean("a.b c*d>e\r\n"), "a_b_c_d_e__");
    }

    #[test]
    fn faults_name_the_setting_and_no_secret() {
        let faults = |text: &str| serde_json::from_str::<NatsConfig>(text).expect("readable").faults("sinks.orders").join("\n");
        assert!(faults("{}").contains("sinks.orders.url is missing"));
        assert!(faults(r#"{"url": "nats://a", "subject": "orders.>"}"#).contains("sinks.orders.subject"));
        let two = faults(r#"{"url": "nats://a", "token": "s3cret", "user": "app"}"#);
        assert!(two.contains("more than one") && !two.contains("s3cret"), "{two}");
    }
}
