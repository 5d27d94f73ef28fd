//! What a case answers to the requests and messages of its plugin, in place of endpoints and brokers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use outbox_sink::{Message, Sink, SinkError};
use serde::Deserialize;

use super::report::Finding;
use super::written::{Url, WrittenBytes};
use crate::{HttpStandIn, Outside};

/// The replies of one case. Those to the same request, or to messages for the same sink, are given in order, and the last of them
/// again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Replies {
    pub(super) http: Vec<HttpReply>,
    pub(super) publish: Vec<PublishReply>,
}

/// What comes of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "WrittenHttpReply")]
pub(super) struct HttpReply {
    method: String,
    url: Url,
    /// The response, or why there is none.
    reply: Result<http::Response<Bytes>, String>,
}

/// What comes of a message.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "WrittenPublishReply")]
pub(super) struct PublishReply {
    sink: String,
    reply: Result<(), SinkError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHttpReply {
    method: String,
    url: Url,
    status: Option<u16>,
    headers: Option<BTreeMap<String, String>>,
    body: Option<WrittenBytes>,
    unavailable: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPublishReply {
    sink: String,
    rejected: Option<String>,
    unavailable: Option<String>,
}

impl TryFrom<WrittenHttpReply> for HttpReply {
    type Error = String;

    fn try_from(written: WrittenHttpReply) -> Result<Self, String> {
        let WrittenHttpReply { method, url, status, headers, body, unavailable } = written;
        let reply = match (unavailable, status.is_some() || headers.is_some() || body.is_some()) {
            (Some(_), true) => return Err("`unavailable` goes without status, headers and body".to_owned()),
            (Some(reason), false) => Err(reason),
            (None, _) => Ok(response(status.unwrap_or(200), headers.unwrap_or_default(), body)?),
        };
        Ok(Self { method, url, reply })
    }
}

fn response(
    status: u16,
    headers: BTreeMap<String, String>,
    body: Option<WrittenBytes>,
) -> Result<http::Response<Bytes>, String> {
    if !(100..=599).contains(&status) {
        return Err(format!("the status {status} is not from 100 to 599"));
    }
    let mut response = http::Response::new(Bytes::new());
    *response.status_mut() = http::StatusCode::from_u16(status).map_err(|error| error.to_string())?;
    for (name, value) in headers {
        let value = HeaderValue::try_from(value).map_err(|_| format!("the header `{name}` has a value that cannot be sent"))?;
        let name = HeaderName::try_from(&name).map_err(|_| format!("`{name}` is not the name of a header"))?;
        response.headers_mut().append(name, value);
    }
    if let Some(body) = body {
        *response.body_mut() = body.bytes();
        if matches!(body, WrittenBytes::Json(_)) {
            response.headers_mut().entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        }
    }
    Ok(response)
}

impl TryFrom<WrittenPublishReply> for PublishReply {
    type Error = String;

    fn try_from(written: WrittenPublishReply) -> Result<Self, String> {
        let WrittenPublishReply { sink, rejected, unavailable } = written;
        let reply = match (rejected, unavailable) {
            (None, None) => Ok(()),
            (Some(reason), None) => Err(SinkError::Rejected { reason }),
            (None, Some(reason)) => Err(SinkError::Unavailable { reason, retry_after: None, tried_ago: Duration::ZERO }),
            (Some(_), Some(_)) => return Err("a message is either `rejected` or `unavailable`".to_owned()),
        };
        Ok(Self { sink, reply })
    }
}

impl Replies {
    pub(super) fn is_empty(&self) -> bool {
        self.http.is_empty() && self.publish.is_empty()
    }

    /// What comes of the request, the nth of its method and URL.
    fn to_request(&self, method: &str, url: &str, nth: usize) -> Option<Result<http::Response<Bytes>, String>> {
        let of = self.http.iter().filter(|reply| reply.method == method && reply.url.as_str() == url);
        nth_or_last(of, nth).map(|reply| reply.reply.clone())
    }

    /// What comes of the message, the nth to its sink.
    fn to_message(&self, sink: &str, nth: usize) -> Option<Result<(), SinkError>> {
        nth_or_last(self.publish.iter().filter(|reply| reply.sink == sink), nth).map(|reply| reply.reply.clone())
    }

    /// What a plugin asked for and the case has no reply to; each thing once.
    pub(super) fn missing(&self, asked: &[Outside]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for outside in asked {
            let finding = match outside {
                Outside::HttpRequest { method, url, .. } if self.to_request(method, url, 0).is_none() => {
                    let there = self.http.iter().map(|reply| format!("{} {}", reply.method, reply.url.as_str()));
                    let add = format!("http = [{{ method = {method:?}, url = {url:?}, status = 200 }}]");
                    no_reply(format!("the request {method} {url}"), &add, there.collect())
                }
                Outside::Message { sink, .. } if self.to_message(sink, 0).is_none() => {
                    let there = self.publish.iter().map(|reply| reply.sink.clone());
                    no_reply(
                        format!("a message to the sink {sink}"),
                        &format!("publish = [{{ sink = {sink:?} }}]"),
                        there.collect(),
                    )
                }
                _ => continue,
            };
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        findings
    }
}

fn nth_or_last<T>(mut of: impl Iterator<Item = T> + Clone, nth: usize) -> Option<T> {
    let last = of.clone().last();
    of.nth(nth).or(last)
}

fn no_reply(what: String, add: &str, there: Vec<String>) -> Finding {
    let others = if there.is_empty() { String::new() } else { format!("; it replies to {}", there.join(", ")) };
    Finding::new(what, format!("the case has no reply to it{others}; add {add}"))
}

/// Gives the replies of one case. [`begin`](Self::begin) comes before every call of the plugin.
#[derive(Debug)]
pub(super) struct Script {
    replies: Replies,
    /// How often each thing was asked for in this call.
    asked: Mutex<BTreeMap<String, usize>>,
}

impl Script {
    pub(super) fn of(replies: &Replies) -> Arc<Self> {
        Arc::new(Self { replies: replies.clone(), asked: Mutex::default() })
    }

    /// Begins a call: every first reply comes first again.
    pub(super) fn begin(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How often this was asked for before.
    fn nth(&self, what: String) -> usize {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(what).or_default();
        *count += 1;
        *count - 1
    }
}

#[async_trait]
impl HttpStandIn for Script {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, String> {
        let (method, url) = (request.method().to_string(), request.uri().to_string());
        let nth = self.nth(format!("{method} {url}"));
        self.replies.to_request(&method, &url, nth).unwrap_or_else(|| Err(format!("the case has no reply to {method} {url}")))
    }
}

/// One sink of a script.
pub(super) struct ScriptedSink {
    pub(super) script: Arc<Script>,
    pub(super) name: String,
}

#[async_trait]
impl Sink for ScriptedSink {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let reply = |_: &Message| {
            // No method is called so.
            let nth = self.script.nth(format!("the sink {}", self.name));
            let reason = || format!("the case has no reply to a message to the sink {}", self.name);
            let missing = || Err(SinkError::Unavailable { reason: reason(), retry_after: None, tried_ago: Duration::ZERO });
            self.script.replies.to_message(&self.name, nth).unwrap_or_else(missing)
        };
        messages.iter().map(reply).collect()
    }
}
