//! Stands between a plugin and what lies outside of it: tells what was asked for, and lets one of those calls fail or never
//! answer.
//!
//! Every capability that waits for something has its source wrapped here, as [`StateSource`] is. One more is one more `impl`
//! that calls [`Gate::pass`] first.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outbox_event::{StateUsage, StateValue};
use outbox_sink::{Message, Sink, SinkError};
use serde::Serialize;
use tokio::sync::Notify;

use crate::capability::http::HttpStandIn;
use crate::capability::state::StateSource;

/// A call of the host that waits for something outside the sandbox, and may fail for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outside {
    /// Read a value of its state.
    StateRead {
        /// Which.
        key: String,
    },
    /// Asked how much of its quota is used, before its first write.
    StateUsage,
    /// Made an HTTP request that it is granted.
    HttpRequest {
        /// `GET`, `POST` and so on.
        method: String,
        /// Absolute.
        url: String,
        /// Names and values, those that the host adds among them. A value that is no text is shown as far as it is.
        headers: Vec<(String, String)>,
        /// The body's bytes.
        #[serde(serialize_with = "lossy")]
        body: Bytes,
    },
    /// Published a message to a sink that it is granted.
    Message {
        /// The sink.
        sink: String,
        /// What a receiver tells a repeat by: the event's id and the number of the message.
        id: String,
        /// Subject, topic, stream, routing key or path; empty for the sink's own.
        subject: String,
        /// What keeps messages in order; `None` for the aggregate's id.
        key: Option<String>,
        /// What the body's bytes are.
        content_type: String,
        /// Names and values.
        headers: Vec<(String, String)>,
        /// The body's bytes.
        #[serde(serialize_with = "lossy")]
        body: Bytes,
    },
}

/// Shows bytes as text, as far as they are.
fn lossy<S: serde::Serializer>(body: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(body))
}

/// What becomes of one call to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is answered with a refusal of the kind `unavailable`.
    Fails,
    /// It is never answered: the plugin's call is cut off there, as its deadline would do later.
    Hangs,
}

/// Trouble for one of the calls to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbance {
    /// For which, counted from 0 in the order of [`CallReport::outside`](crate::CallReport::outside).
    pub at: usize,
    /// What becomes of it.
    pub trouble: Trouble,
}

/// What every call to the outside passes.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    passed: Mutex<Passed>,
    hangs: Notify,
}

#[derive(Debug, Default)]
struct Passed {
    calls: Vec<Outside>,
    disturbance: Option<Disturbance>,
    hangs: bool,
}

impl Gate {
    /// Begins a call of the plugin.
    pub(crate) fn begin(&self, disturbance: Option<Disturbance>) {
        *self.lock() = Passed { disturbance, ..Passed::default() };
    }

    /// What went through since the plugin's call began.
    pub(crate) fn take(&self) -> Vec<Outside> {
        std::mem::take(&mut self.lock().calls)
    }

    /// Returns once a call hangs.
    pub(crate) async fn hangs(&self) {
        // What is left of an earlier call wakes it in vain.
        while !self.lock().hangs {
            self.hangs.notified().await;
        }
    }

    /// Lets one call through, or not.
    ///
    /// # Errors
    /// When this one is to fail.
    async fn pass(&self, call: Outside) -> Result<(), String> {
        let trouble = {
            let mut passed = self.lock();
            let at = passed.calls.len();
            passed.calls.push(call);
            let trouble = passed.disturbance.filter(|disturbance| disturbance.at == at).map(|disturbance| disturbance.trouble);
            passed.hangs = trouble == Some(Trouble::Hangs);
            trouble
        };
        match trouble {
            None => Ok(()),
            Some(Trouble::Fails) => Err("it fails here, as it was told to".to_owned()),
            Some(Trouble::Hangs) => {
                self.hangs.notify_one();
                std::future::pending().await
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever answers HTTP requests, behind the gate.
pub(crate) struct GatedHttp {
    pub(crate) gate: Arc<Gate>,
    pub(crate) answers: Arc<dyn HttpStandIn>,
}

#[async_trait]
impl HttpStandIn for GatedHttp {
    async fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, String> {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = request.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let (method, url) = (request.method().to_string(), request.uri().to_string());
        self.gate.pass(Outside::HttpRequest { method, url, headers, body: request.body().clone() }).await?;
        self.answers.send(request).await
    }
}

/// Answers every request with 200 and nothing.
pub(crate) struct EmptyAnswers;

#[async_trait]
impl HttpStandIn for EmptyAnswers {
    async fn send(&self, _: http::Request<Bytes>) -> Result<http::Response<Bytes>, String> {
        Ok(http::Response::new(Bytes::new()))
    }
}

/// Confirms every message and sends none.
pub(crate) struct Confirms;

#[async_trait]
impl Sink for Confirms {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        messages.iter().map(|_| Ok(())).collect()
    }
}

/// A sink behind the gate. It gets one message at a time.
pub(crate) struct GatedSink {
    pub(crate) gate: Arc<Gate>,
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
}

#[async_trait]
impl Sink for GatedSink {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            let Message { id, subject, key, content_type, headers, body, .. } = message.clone();
            let call = Outside::Message { sink: self.name.clone(), id, subject, key, content_type, headers, body };
            answers.push(match self.gate.pass(call).await {
                Ok(()) => self.sink.send(std::slice::from_ref(message)).await.pop().unwrap_or_else(SinkError::unanswered),
                Err(reason) => Err(SinkError::Unavailable { reason, retry_after: None, tried_ago: Duration::ZERO }),
            });
        }
        answers
    }
}

/// A plugin's state behind the gate.
pub(crate) struct GatedState {
    pub(crate) gate: Arc<Gate>,
    pub(crate) state: Arc<dyn StateSource>,
}

#[async_trait]
impl StateSource for GatedState {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, String> {
        self.gate.pass(Outside::StateRead { key: key.to_owned() }).await?;
        self.state.get(plugin, key).await
    }

    async fn usage(&self, plugin: &str) -> Result<StateUsage, String> {
        self.gate.pass(Outside::StateUsage).await?;
        self.state.usage(plugin).await
    }
}
