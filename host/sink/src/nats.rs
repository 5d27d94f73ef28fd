//! NATS: a message for a stream of JetStream, which answers when it has kept it.
//!
//! A publish to JetStream is a request: the stream that takes the subject answers with the message's number. The stream removes
//! duplicates by `Nats-Msg-Id` within its duplicate window. Each message waits for its own answer alone: nobody answers one whose
//! subject is read by others but kept by no stream, until its time is over.

mod config;
mod denied;
mod open;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{HeaderMap, Request, RequestErrorKind};
use async_trait::async_trait;
use futures_util::future::join_all;
use serde::Deserialize;

pub use config::NatsConfig;
use open::{End, MAX_READ, Open};

use super::batching::{Batch, Limits, Link, PLACES};
use super::connection::Connection;
use super::error::quoted;
use super::headers::{carried, own, printable, token};
use super::kind::Kind;
use super::{Message, SinkError, tls};

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: PLACES };

/// Whether a character may not stand in a subject to publish to. Dots may, in the operator's text.
fn is_no_token(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '*' | '>')
}

/// What an event says, as one token of a subject. Without `$`, with which NATS's own subjects begin: what is published to
/// `$KV.config.flags` changes a value of a bucket.
fn clean(value: &str) -> String {
    value.chars().map(|c| if is_no_token(c) || matches!(c, '.' | '$') { '_' } else { c }).collect()
}

/// With which the subjects begin where others wait for answers.
const INBOX: &str = "_INBOX.";

/// A connection to NATS.
struct Nats {
    name: String,
    config: NatsConfig,
    connection: Connection<Open>,
}

impl Nats {
    fn new(name: &str, config: NatsConfig) -> Result<Self, String> {
        config.options()?;
        Ok(Self { name: name.to_owned(), config, connection: Connection::default() })
    }

    async fn connect(&self) -> Result<Open, SinkError> {
        let urls: Vec<String> = self.config.url.split(',').map(|url| url.trim().to_owned()).collect();
        let options = self.config.options().map_err(SinkError::down)?;
        let options = options
            .name(format!("outbox {}", self.name))
            .connection_timeout(self.config.timeout.min(Duration::from_secs(5)))
            // A server that works sends something at least this often. The client gives a connection up after three intervals of silence,
            // and so not before a message on it has had its whole time: a large payload may need most of that on a slow link.
            .ping_interval((self.config.timeout / 2).max(Duration::from_millis(1)))
            // A server may not say where else the host is to connect to, and log in.
            .ignore_discovered_servers()
            // One try for each server; after that a new client is made.
            .max_reconnects(urls.len());
        Open::connect(options, urls).await.map_err(|error| {
            let reason = tls::reason(&*error, self.config.ca_file.as_deref());
            SinkError::down(format!("NATS at {} cannot be connected to: {reason}", self.config.target()))
        })
    }

    async fn publish(&self, open: &Open, message: &Message, deadline: Instant) -> Result<(), SinkError> {
        let subject = self.subject(message)?;
        let request = Request::new().payload(message.body.clone()).headers(headers(message)).timeout(None);
        // The server says it again if it still denies the subject.
        open.denied.forget(&subject);
        let answer = tokio::select! {
            biased;
            answer = open.request(subject.clone(), request) => answer,
            end = open.ended() => return Err(self.ended(end)),
            () = open.denied.noted(&subject) => return Err(self.denied(&subject)),
            // A silent server answers no message, so none of them has failed.
            is_silent = open.is_silent(self.config.timeout, deadline) => return Err(match is_silent {
                Some(true) => {
                    // The next batch connects anew, perhaps to another server.
                    self.cut_off();
                    self.silent()
                }
                Some(false) => self.unanswered(open, &subject),
                None => self.silent(),
            }),
        };
        match answer {
            Ok(answer) => kept(&answer.payload, &subject),
            Err(error) => Err(match error.kind() {
                // A cluster answers the same while the stream has no leader or JetStream starts, and then its events must not die.
                RequestErrorKind::NoResponders => SinkError::closed(format!(
                    "no stream of JetStream takes the subject {} now; make one that does, unless JetStream is starting",
                    quoted(&subject)
                )),
                RequestErrorKind::InvalidSubject => {
                    SinkError::rejected(format!("`{}` is not a valid subject", quoted(&subject)))
                }
                RequestErrorKind::MaxPayloadExceeded => {
                    SinkError::rejected(format!("the message is larger than the server takes ({} bytes)", message.body.len()))
                }
                RequestErrorKind::TimedOut => self.unanswered(open, &subject),
                RequestErrorKind::Other => self.ended(open.end()),
            }),
        }
    }

    fn subject(&self, message: &Message) -> Result<String, SinkError> {
        let subject = self.config.subject.subject_of(message, clean);
        // `$JS.API.…` deletes streams, `$SYS.…` steers the server.
        let is_kept_back = subject.starts_with('$') || subject.starts_with(INBOX);
        if is_kept_back && !message.subject.is_empty() && !message.trusts_subject {
            return Err(SinkError::rejected(format!(
                "the subject {} is NATS's own; no message may choose it",
                quoted(&subject)
            )));
        }
        if subject.chars().any(is_no_token) || subject.split('.').any(str::is_empty) {
            return Err(SinkError::rejected(format!("`{}` is not a subject that can be published to", quoted(&subject))));
        }
        Ok(subject.into_owned())
    }

    fn ended(&self, end: End) -> SinkError {
        let target = self.config.target();
        SinkError::down(match end {
            End::Lost => format!("the connection to NATS at {target} was lost"),
            End::Flooded => format!(
                "NATS at {target} sent {} MiB more than its answers need, and the connection was closed; check the server",
                MAX_READ >> 20
            ),
        })
    }

    /// The server answers pings, but there was no answer for this message; others may be confirmed.
    fn unanswered(&self, open: &Open, subject: &str) -> SinkError {
        if let Some(inbox) = open.denied.inbox() {
            return SinkError::down(format!(
                "NATS at {} does not let this host subscribe to {}, where it waits for answers; grant {INBOX}>",
                self.config.target(),
                quoted(&inbox)
            ));
        }
        SinkError::failed(format!(
            "no stream of JetStream confirmed the subject {}: perhaps none takes it, or this user may not publish there",
            quoted(subject)
        ))
    }

    fn denied(&self, subject: &str) -> SinkError {
        let target = self.config.target();
        let subject = quoted(subject);
        SinkError::closed(format!("NATS at {target} does not let this host publish to the subject {subject}; grant it there"))
    }

    fn silent(&self) -> SinkError {
        SinkError::down(format!("NATS at {} does not answer", self.config.target()))
    }
}

#[async_trait]
impl Link for Nats {
    async fn send(&self, batch: &Batch, deadline: Instant) {
        let connecting = self.connection.get(Open::works, self.connect());
        let open = match tokio::time::timeout_at(deadline.into(), connecting).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => return batch.fail(&error),
            Err(_) => return batch.fail(&self.silent()),
        };
        let publishing = batch
            .messages()
            .iter()
            .enumerate()
            .map(async |(index, message)| batch.answer(index, self.publish(&open, message, deadline).await));
        join_all(publishing).await;
    }

    fn destination<'m>(&self, message: &'m Message) -> Option<Cow<'m, str>> {
        self.subject(message).ok().map(Cow::Owned)
    }

    fn cut_off(&self) {
        self.connection.forget();
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
    /// Zero if the server sent none, as old ones do.
    #[serde(default)]
    err_code: u16,
    #[serde(default)]
    description: String,
}

/// The errors that are the message's own fault: its size or its headers are too large. Source: nats-server, server/errors.json.
const TOO_LARGE: [u16; 2] = [10_054, 10_097];

impl AckError {
    /// Whether the message itself is the cause. The HTTP-like `code` decides only if there is no other: it is also 400 if the account's
    /// quota is used up.
    fn is_of_message(&self) -> bool {
        TOO_LARGE.contains(&self.err_code) || (self.err_code == 0 && self.code == 400)
    }
}

fn kept(answer: &[u8], subject: &str) -> Result<(), SinkError> {
    match serde_json::from_slice(answer) {
        Ok(Ack { error: Some(error), .. }) => {
            let number = if error.err_code == 0 { error.code } else { error.err_code };
            let reason = format!("JetStream refused the message ({number}): {}", quoted(&error.description));
            // Other errors concern every message of the stream, and may pass: a quota, no space, no leader.
            Err(if error.is_of_message() { SinkError::rejected(reason) } else { SinkError::closed(reason) })
        }
        Ok(Ack { stream: Some(_), error: None }) => Ok(()),
        // It may keep the message, so it is not sent for ever.
        _ => Err(SinkError::failed(format!(
            "the subject {} is answered by something that is not a JetStream stream; make a stream that takes it",
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
            assert!(matches!(kept(no_stream, "a"), Err(SinkError::Failed { .. })), "{no_stream:?}");
        }
        let too_large =
            br#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"S"}"#;
        let by_old_server = br#"{"error":{"code":400,"description":"message size exceeds maximum allowed"},"stream":"S"}"#;
        for refused in [&too_large[..], &by_old_server[..]] {
            assert!(matches!(kept(refused, "a"), Err(SinkError::Rejected { .. })), "{refused:?}");
        }
        let full = br#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S"}"#;
        let quota =
            br#"{"error":{"code":400,"err_code":10002,"description":"resource limits exceeded for account"},"stream":"S"}"#;
        for waits in [&full[..], &quota[..]] {
            assert!(matches!(kept(waits, "a"), Err(SinkError::Closed { .. })), "{waits:?}");
        }
    }

    #[test]
    fn what_an_event_says_is_one_token_of_a_subject() {
        assert_eq!(clean("a.b c*d>e\r\n"), "a_b_c_d_e__");
        assert_eq!(clean("$KV"), "_KV", "not the beginning of a subject of NATS's own");
    }
}
