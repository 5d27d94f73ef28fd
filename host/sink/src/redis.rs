//! Redis: a message as an entry of a stream, added by XADD; the server's answer is the entry's id.
//!
//! Redis does not remove duplicates: consumers do it by the field `id`. Whether a confirmed entry survives a crash depends on the
//! server's `appendfsync`.
//!
//! A batch is one pipeline, whose answers come together and in its order. An entry that the server refuses fails alone; one that it
//! is slow to answer holds up those behind it, since a server does one thing after another.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError,
    RedisResult, ServerErrorKind, Value,
};
use async_trait::async_trait;
use outbox_event::chain::chain;
use outbox_event::units::duration;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use url::Url;

use super::batching::{Batch, Batching, Limits, Link};
use super::common::TIMEOUT;
use super::connection::Connection;
use super::error::quoted;
use super::headers::{carried, own};
use super::kind::Kind;
use super::stream::Lifeline;
use super::{CommonConfig, Message, Secret, SinkError, Template, target, tls};

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: 2 };

const SCHEMES: [&str; 2] = ["redis", "rediss"];

/// A connection to Redis whose messages become entries of streams.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Where the server is: `redis://host:6379/0`, or `rediss://` with TLS. Required.
    pub url: String,
    /// The user of the server's access list; `None` for the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The stream of a message that has no subject. Default `outbox:{aggregate_type}`. In what an event says, spaces become `_`.
    pub stream: Template,
    /// Which streams a message may choose for itself, as patterns. Default none: any other key of the database could be one.
    pub subjects: Vec<String>,
    /// About how many entries a stream keeps; older ones go. `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxlen: Option<u64>,
    /// The time within which the server must have answered. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            user: None,
            password: None,
            ca_file: None,
            stream: "outbox:{aggregate_type}".parse().expect("a template of ours"),
            subjects: Vec::new(),
            maxlen: None,
            timeout: TIMEOUT,
        }
    }
}

impl Kind for RedisConfig {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn target(&self) -> String {
        target::shown(&self.url)
    }

    fn common(&self) -> CommonConfig {
        CommonConfig { timeout: self.timeout, subjects: self.subjects.clone(), max_age: None }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults: Vec<_> = target::fault(&format!("{prefix}.url"), &self.url, &SCHEMES).into_iter().collect();
        faults.extend(tls::fault(prefix, self.ca_file.as_deref(), [&*self.url], "rediss"));
        if self.url.trim().parse::<Url>().is_ok_and(|url| url.fragment().is_some()) {
            faults.push(format!(
                "{prefix}.url has a `#`; a certificate is always checked, and ca_file says against which authority"
            ));
        }
        if self.stream.as_str().is_empty() {
            faults.push(format!("{prefix}.stream is empty; write it like outbox:{{aggregate_type}}"));
        }
        if self.maxlen == Some(0) {
            faults.push(format!("{prefix}.maxlen is 0; it must be at least 1, or left out"));
        }
        faults
    }

    fn start(&self, name: &str) -> Result<Batching, String> {
        Ok(Batching::start(name, Redis::new(self.clone())?, self.common(), LIMITS))
    }
}

impl RedisConfig {
    /// Where the server is and how to log in; with TLS or without.
    fn server(&self) -> Result<Server, String> {
        let bad = |error: RedisError| format!("the address is none of Redis: {}", error.kind_text());
        let url = self.url.trim();
        // The client does not need to know of TLS, which is below its stream.
        let encrypted = url.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("rediss"));
        let plain = encrypted.map(|(_, rest)| format!("redis://{rest}"));
        let info = plain.as_deref().unwrap_or(url).into_connection_info().map_err(bad)?;
        let ConnectionAddr::Tcp(host, port) = info.addr().clone() else {
            return Err("the address does not name a server".to_owned());
        };
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.reveal());
        }
        let tls = encrypted.map(|_| tls::client(self.ca_file.as_deref())).transpose()?.map(Arc::new);
        Ok(Server { host, port, tls, settings })
    }
}

/// The text of an error, without anything that was sent.
trait KindText {
    fn kind_text(&self) -> String;
}

impl KindText for RedisError {
    fn kind_text(&self) -> String {
        quoted(&chain(self))
    }
}

/// A server of Redis.
struct Server {
    host: String,
    port: u16,
    /// `None` without TLS.
    tls: Option<Arc<ClientConfig>>,
    settings: RedisConnectionInfo,
}

/// A connection to Redis.
struct Redis {
    config: RedisConfig,
    server: Server,
    connection: Connection<Open>,
}

/// An open connection.
#[derive(Clone)]
struct Open {
    connection: MultiplexedConnection,
    /// Ends the task of the connection with the last clone.
    lifeline: Arc<Lifeline>,
}

impl Redis {
    fn new(config: RedisConfig) -> Result<Self, String> {
        let server = config.server()?;
        Ok(Self { config, server, connection: Connection::default() })
    }

    async fn connect(&self) -> Result<Open, SinkError> {
        let patience = self.config.timeout.min(Duration::from_secs(5));
        let opening = tokio::time::timeout(patience, self.open()).await;
        opening
            .unwrap_or_else(|_| Err("it does not answer".to_owned()))
            .map_err(|reason| SinkError::down(format!("Redis at {} cannot be connected to: {reason}", self.config.target())))
    }

    async fn open(&self) -> Result<Open, String> {
        let Server { host, port, tls, settings } = &self.server;
        let lifeline = Lifeline::default();
        let ca_file = self.config.ca_file.as_deref();
        let stream = lifeline.opener().connect(host, *port, tls.clone()).await.map_err(|error| tls::reason(&error, ca_file))?;
        let options = AsyncConnectionConfig::new().set_response_timeout(Some(self.config.timeout));
        let opened = MultiplexedConnection::new_with_config(settings, stream, options).await;
        let (connection, task) = opened.map_err(|error| tls::reason(&error, ca_file))?;
        tokio::spawn(task);
        Ok(Open { connection, lifeline: Arc::new(lifeline) })
    }

    /// Adds one command for a message.
    fn add(&self, pipeline: &mut Pipeline, message: &Message) {
        let stream = self.config.stream.subject_of(message, |value| value.replace(char::is_whitespace, "_"));
        let command = pipeline.cmd("XADD").arg(stream.as_bytes());
        if let Some(maxlen) = self.config.maxlen {
            command.arg("MAXLEN").arg("~").arg(maxlen);
        }
        command.arg("*").arg("id").arg(&message.id);
        for (name, value) in own(message) {
            command.arg(name).arg(value);
        }
        if let Some(key) = message.key() {
            command.arg("key").arg(key);
        }
        command.arg("content-type").arg(&message.content_type).arg("body").arg(&message.body[..]);
        let headers: serde_json::Map<String, serde_json::Value> =
            carried(message, |_| false).map(|(name, value)| (name.to_owned(), value.into())).collect();
        if !headers.is_empty() {
            command.arg("headers").arg(serde_json::Value::Object(headers).to_string());
        }
    }

    /// What an error of the server means for the message.
    fn refused(&self, error: &RedisError) -> SinkError {
        let reason = format!("Redis at {}: {}", self.config.target(), error.kind_text());
        match error.kind() {
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain,
            ) => SinkError::down(reason),
            // Access rights belong to the connection, not to the message: once they are granted, the same message goes through.
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "OOM" | "MISCONF" | "NOREPLICAS")) => {
                SinkError::down(reason)
            }
            ErrorKind::Server(_) | ErrorKind::Extension => SinkError::rejected(reason),
            _ => SinkError::down(reason),
        }
    }
}

#[async_trait]
impl Link for Redis {
    async fn send(&self, batch: &Batch<'_>, deadline: Instant) {
        let sending = async {
            let Open { mut connection, lifeline } = self.connection.get(|_| true, self.connect()).await?;
            lifeline.allow();
            let mut pipeline = Pipeline::with_capacity(batch.messages().len());
            for message in batch.messages() {
                self.add(&mut pipeline, message);
            }
            let answers: RedisResult<Vec<RedisResult<Value>>> = pipeline.ignore_errors().query_async(&mut connection).await;
            answers.map_err(|error| {
                self.cut_off();
                SinkError::down(format!("Redis at {}: {}", self.config.target(), error.kind_text()))
            })
        };
        match tokio::time::timeout_at(deadline.into(), sending).await {
            Ok(Ok(answers)) => {
                let answers: Vec<_> =
                    answers.into_iter().map(|answer| answer.map(|_| ()).map_err(|error| self.refused(&error))).collect();
                // A master may have become a replica; a new connection may reach the new master.
                if answers.iter().any(|answer| answer.as_ref().is_err_and(SinkError::is_down)) {
                    self.cut_off();
                }
                batch.answer_all(answers);
            }
            Ok(Err(error)) => batch.fail(&error),
            Err(_) => {
                self.cut_off();
                batch.fail(&SinkError::down(format!("Redis at {} does not answer", self.config.target())));
            }
        }
    }

    fn cut_off(&self) {
        self.connection.forget();
    }
}
