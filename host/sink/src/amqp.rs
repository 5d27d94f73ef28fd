//! AMQP 0-9-1, as RabbitMQ speaks it: persistent messages with publisher confirms.
//!
//! A message is confirmed when the broker has taken it into every queue that it was routed to. One that is routed to none comes
//! back, since it is published as `mandatory`, and counts as rejected. RabbitMQ does not remove duplicates: consumers do it by
//! `message_id`.
//!
//! Each message has a confirmation of its own. One that the broker never confirms, as when a quorum queue has lost its majority, keeps
//! its batch open until the timeout: the other messages of that batch are answered at once, but one of the few batches that may be on
//! their way is taken. The next batch connects anew, since such a broker looks like one that hangs.

mod config;
mod transport;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_rs::{Runtime, Tokio};
use async_trait::async_trait;
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{BasicProperties, Channel, Confirmation, ConnectionProperties, ErrorKind, PublisherConfirm};
use outbox_event::chain::chain;
use rustls::ClientConfig;

pub use config::AmqpConfig;

use super::batching::{Batch, Limits, Link};
use super::connection::Connection;
use super::error::quoted;
use super::headers::{carried, own};
use super::kind::Kind;
use super::stream::Lifeline;
use super::{Message, SinkError, tls};

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: 4 };

/// The most bytes of a short string of AMQP: a routing key, the name of a header.
const SHORT: usize = 255;
/// The most bytes of headers. They travel in one frame, and a broker closes the connection over one that is too large.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The bytes that a frame of headers holds beside them.
const FRAME_REST: usize = 2 << 10;
/// How long a connection that was given up may take to close in order.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// `delivery_mode` of a message that survives the broker's restart.
const PERSISTENT: u8 = 2;

/// What an event says, as one word of a routing key.
fn clean(value: &str) -> String {
    value.chars().map(|c| if c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '#') { '_' } else { c }).collect()
}

/// A connection to RabbitMQ.
struct Amqp {
    name: String,
    config: AmqpConfig,
    /// The exchange, in the form that is sent.
    exchange: ShortString,
    uri: AMQPUri,
    /// `None` without TLS.
    tls: Option<Arc<ClientConfig>>,
    connection: Connection<Arc<Open>>,
}

/// An open connection, and the channel on it that messages are published on.
struct Open {
    channel: Channel,
    /// It is closed when this value is dropped.
    connection: lapin::Connection,
    /// Without it lapin would wait, in a thread of its own, for a broker that never answers. `None` while this value is dropped.
    lifeline: Option<Lifeline>,
}

impl Open {
    fn works(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }

    /// The broker may send as much again as it may for a batch.
    fn begin_batch(&self) {
        self.lifeline.iter().for_each(Lifeline::allow);
    }

    /// Most bytes of a message's headers on this connection.
    fn max_header_bytes(&self) -> usize {
        let frame = usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX);
        MAX_HEADER_BYTES.min(frame.saturating_sub(FRAME_REST))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(lifeline) = self.lifeline.take() else { return };
        // A broker that answers gets to close the connection in order.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(CLOSE_WITHIN).await;
                drop(lifeline);
            });
        }
    }
}

impl Amqp {
    fn new(name: &str, config: AmqpConfig) -> Result<Self, String> {
        let uri = config.uri().map_err(|_| "url is not an AMQP address".to_owned())?;
        let tls = match uri.scheme {
            AMQPScheme::AMQP => None,
            AMQPScheme::AMQPS => Some(Arc::new(tls::client(config.ca_file.as_deref())?)),
        };
        let exchange = ShortString::try_new(config.exchange.clone()).map_err(|_| "exchange is too long".to_owned())?;
        Ok(Self { name: name.to_owned(), config, exchange, uri, tls, connection: Connection::default() })
    }

    async fn connect(&self) -> Result<Arc<Open>, SinkError> {
        self.open().await.map(Arc::new).map_err(|error| {
            let reason = tls::reason(&error, self.config.ca_file.as_deref());
            SinkError::down(format!("RabbitMQ at {} cannot be connected to: {reason}", self.config.target()))
        })
    }

    async fn open(&self) -> lapin::Result<Open> {
        let tls = self.tls.clone();
        let lifeline = Lifeline::default();
        let opener = lifeline.opener();
        let connect = async move |uri: AMQPUri, _: Runtime<transport::Kit>| {
            let stream = transport::connect(&opener, &uri.authority.host, uri.authority.port, tls.clone()).await;
            stream.map_err(lapin::Error::from)
        };
        let properties = ConnectionProperties::default().with_connection_name(format!("outbox {}", self.name).into());
        let runtime = Runtime::new(transport::Kit(Tokio::current()));
        let connection = lapin::Connection::connector(self.uri.clone(), runtime, connect, properties).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Open { channel, connection, lifeline: Some(lifeline) })
    }

    /// Hands a message to the channel; the broker confirms it later.
    async fn publish(&self, open: &Open, batch: &Batch, message: &Message) -> Result<PublisherConfirm, SinkError> {
        let key = self.config.routing_key.subject_of(message, clean);
        let key = ShortString::try_new(key.into_owned())
            .map_err(|_| SinkError::rejected(format!("the routing key has more than {SHORT} bytes")))?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = properties(message, open.max_header_bytes())?;
        let sent = open.channel.basic_publish(self.exchange.clone(), key, options, &message.body, properties).await;
        sent.map_err(|error| self.lost(&error, batch))
    }

    /// The answer to a message that the broker had not confirmed when the channel or the connection ended.
    fn lost(&self, error: &lapin::Error, batch: &Batch) -> SinkError {
        let reason = format!("RabbitMQ at {}: {}", self.config.target(), quoted(&chain(error)));
        // The broker closes a channel, but not the connection, for one of its messages, without telling for which. Such a message must not
        // come again and again without an attempt that counts, and must not stop the sink.
        match error.kind() {
            ErrorKind::ProtocolError(error) => match error.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE) => {
                    SinkError::failed(reason)
                }
                AMQPErrorKind::Soft(_) if reason.contains("access to topic") || batch.is_confirmed() => {
                    SinkError::failed(reason)
                }
                // The exchange may not be there, or not be open to this user.
                AMQPErrorKind::Soft(_) | AMQPErrorKind::Hard(_) => SinkError::down(reason),
            },
            // It came after the message for which the channel was closed.
            ErrorKind::InvalidChannelState(..) => SinkError::unavailable(reason),
            _ => SinkError::down(reason),
        }
    }

    fn silent(&self) -> SinkError {
        SinkError::down(format!("RabbitMQ at {} does not answer", self.config.target()))
    }

    async fn confirmed(
        &self,
        sent: Result<PublisherConfirm, SinkError>,
        batch: &Batch,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        match tokio::time::timeout_at(deadline.into(), sent?).await {
            Ok(Ok(Confirmation::Ack(None))) => Ok(()),
            Ok(Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)))) => {
                Err(SinkError::rejected(format!(
                    "no queue takes the message ({} {}): the exchange is `{}`, the routing key `{}`",
                    returned.reply_code,
                    quoted(returned.reply_text.as_str()),
                    quoted(returned.delivery.exchange.as_str()),
                    quoted(returned.delivery.routing_key.as_str()),
                )))
            }
            Ok(Ok(Confirmation::Nack(None))) => Err(SinkError::unavailable("RabbitMQ could not keep the message")),
            Ok(Ok(Confirmation::NotRequested)) => Err(SinkError::unavailable("RabbitMQ did not confirm the message")),
            Ok(Err(error)) => Err(self.lost(&error, batch)),
            Err(_) => Err(self.silent()),
        }
    }
}

#[async_trait]
impl Link for Amqp {
    async fn send(&self, batch: &Batch, deadline: Instant) {
        let connecting = self.connection.get(|open| open.works(), self.connect());
        let open = match tokio::time::timeout_at(deadline.into(), connecting).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => return batch.fail(&error),
            Err(_) => return batch.fail(&self.silent()),
        };
        open.begin_batch();
        let mut sent = Vec::with_capacity(batch.messages().len());
        for message in batch.messages() {
            let publishing = tokio::time::timeout_at(deadline.into(), self.publish(&open, batch, message));
            sent.push(publishing.await.unwrap_or_else(|_| Err(self.silent())));
        }
        let confirming = sent.into_iter().enumerate().map(async |(index, sent)| {
            let answer = self.confirmed(sent, batch, deadline).await;
            let is_down = answer.as_ref().is_err_and(SinkError::is_down);
            batch.answer(index, answer);
            is_down
        });
        if join_all(confirming).await.contains(&true) {
            self.cut_off();
        }
    }

    fn cut_off(&self) {
        self.connection.forget();
    }
}

/// Id, content type, headers. `CC` and `BCC` would make RabbitMQ route the message elsewhere too, `x-…` control its plugins.
fn properties(message: &Message, max_header_bytes: usize) -> Result<BasicProperties, SinkError> {
    let bytes: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > max_header_bytes {
        return Err(SinkError::rejected(format!(
            "the message has {bytes} bytes of headers; at most {max_header_bytes} are sent"
        )));
    }
    let short = |what: &str, text: &str| {
        ShortString::try_new(text).map_err(|_| SinkError::rejected(format!("the message's {what} has more than {SHORT} bytes")))
    };
    let mut headers = FieldTable::default();
    let mut put = |name: ShortString, value: &str| {
        headers.insert(name, AMQPValue::LongString(LongString::from(value)));
    };
    for (name, value) in carried(message, |name| matches!(name, "cc" | "bcc") || name.starts_with("x-")) {
        put(short("header", name)?, value);
    }
    for (name, value) in own(message) {
        put(short("header", name)?, &value);
    }
    if let Some(key) = message.key() {
        put(short("header", "key")?, key);
    }
    let properties = BasicProperties::default()
        .with_message_id(short("id", &message.id)?)
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers);
    if message.content_type.is_empty() {
        return Ok(properties);
    }
    Ok(properties.with_content_type(short("content type", &message.content_type)?))
}
