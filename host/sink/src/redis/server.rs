//! One server of Redis, and a connection to it.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError};
use outbox_event::chain::chain;
use rustls::ClientConfig;

use super::RedisConfig;
use super::named::may_be_at;
use crate::error::quoted;
use crate::stream::Lifeline;
use crate::tls;

/// A server of Redis: where it is, and how to log in.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) settings: RedisConnectionInfo,
    /// Whether another server named it. The operator named the others.
    pub(super) is_named: bool,
}

/// An open connection.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    /// Ends the task of the connection with the last clone.
    pub(super) lifeline: Arc<Lifeline>,
    /// The server's host: a server of a cluster that names no host means its own.
    pub(super) host: Arc<str>,
}

impl Server {
    /// The server of an address, with the credentials in it.
    ///
    /// # Errors
    /// When the address is not one of Redis.
    pub(super) fn of(url: &str) -> Result<Self, String> {
        let bad = |error: RedisError| format!("the address is not valid for Redis: {}", error.kind_text());
        // The client does not need to know of TLS, which is below its stream.
        let plain = url.split_once("://").map(|(_, rest)| format!("redis://{rest}"));
        let info = plain.as_deref().unwrap_or(url).into_connection_info().map_err(bad)?;
        let ConnectionAddr::Tcp(host, port) = info.addr().clone() else {
            return Err("the address does not name a server".to_owned());
        };
        Ok(Self { host, port, settings: info.redis_settings().clone(), is_named: false })
    }

    /// `host:port`.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", quoted(&self.host), self.port)
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// Why that is not possible, for an operator.
    pub(super) async fn open(&self, options: &Options) -> Result<Open, String> {
        let lifeline = Lifeline::default();
        let reason = |error: &(dyn std::error::Error + 'static)| tls::reason(error, options.config.ca_file.as_deref());
        let opener = if self.is_named { lifeline.opener().only_at(may_be_at) } else { lifeline.opener() };
        let stream = opener.connect(&self.host, self.port, options.tls.clone()).await.map_err(|error| reason(&error))?;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(options.config.timeout));
        let opened = MultiplexedConnection::new_with_config(&self.settings, stream, patient).await;
        let (connection, task) = opened.map_err(|error| reason(&error))?;
        tokio::spawn(task);
        Ok(Open { connection, lifeline: Arc::new(lifeline), host: Arc::from(self.host.as_str()) })
    }
}

/// How the servers of a sink are connected to.
pub(super) struct Options {
    pub(super) config: RedisConfig,
    /// `None` without TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Options {
    /// The longest that connecting may take.
    pub(super) fn patience(&self) -> Duration {
        self.config.timeout.min(Duration::from_secs(5))
    }
}

/// The text of an error, without anything that was sent.
pub(super) trait KindText {
    fn kind_text(&self) -> String;
}

impl KindText for RedisError {
    fn kind_text(&self) -> String {
        quoted(&chain(self))
    }
}
