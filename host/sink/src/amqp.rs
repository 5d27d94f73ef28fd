//! AMQP 0-9-1, as RabbitMQ speaks it: persistent messages with publisher confirms.
//!
//! A message is confirmed when the broker has taken it into every queue that it was routed to. One that is routed to none comes
//! back, since it is published as `mandatory`, and waits: nearly always a queue or binding is missing. RabbitMQ does not remove
//! duplicates: consumers do it by `message_id`.
//!
//! Each message has a confirmation of its own. One that the broker never confirms, as when a quorum queue has lost its majority, keeps
//! its batch open until the timeout: the other messages of that batch are answered at once, but one of the few batches that may be on
//! their way is taken. The next batch connects anew, since such a broker looks like one that hangs.
//!
//! RabbitMQ closes a channel for a message that it refuses, such as one that is too large, and does not name the message. Then all
//! unconfirmed messages of the channel are sent again, each on a channel of its own. Those that had reached their queues arrive twice.

mod config;
mod open;
mod transport;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use async_rs::{Runtime, Tokio};
use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use lapin::options::BasicPublishOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{BasicProperties, Channel, Confirmation, ConnectionProperties, ErrorKind, PublisherConfirm};
use open::{Open, open_channel};
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
/// Most messages of a batch that are sent at once on channels of their own. The broker may allow few channels.
const MAX_CHANNELS_OF_BATCH: usize = 8;
/// `delivery_mode` of a message that survives the broker's restart.
const PERSISTENT: u8 = 2;

/// What an event says, as one word of a routing key.
fn clean(value: &str) -> String {
    value.chars().map(|c| if c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '#') { '_' } else { c }).collect()
}

/// The result of publishing a message on the channel that all batches share.
#[derive(PartialEq, Eq)]
enum PublishResult {
    /// The message has its answer.
    Answered,
    /// The message has its answer: the sink is down.
    Down,
    /// The message has no answer: the broker closed the channel, for this message or for another one.
    ChannelClosed { index: usize },
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
        let channel = open_channel(&connection).await?;
        Ok(Open::new(channel, connection, lifeline))
    }

    /// Hands a message to a channel of the connection; the broker confirms it later.
    async fn publish(
        &self,
        open: &Open,
        channel: &Channel,
        batch: &Batch,
        message: &Message,
    ) -> Result<PublisherConfirm, SinkError> {
        let key = self.config.routing_key.subject_of(message, clean);
        let key = ShortString::try_new(key.into_owned())
            .map_err(|_| SinkError::rejected(format!("the routing key has more than {SHORT} bytes")))?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = properties(message, open.max_header_bytes())?;
        let sent = channel.basic_publish(self.exchange.clone(), key, options, &message.body, properties).await;
        sent.map_err(|error| self.lost(&error, batch))
    }

    /// The answer to a message that the broker had not confirmed when the channel or the connection ended.
    fn lost(&self, error: &lapin::Error, batch: &Batch) -> SinkError {
        let reason = format!("RabbitMQ at {}: {}", self.config.target(), quoted(&chain(error)));
        // The broker closes a channel, but not the connection, for one of its messages. Retries of such a message must count as attempts,
        // and must not stop the sink.
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
            // The channel was closed before this message was sent.
            ErrorKind::InvalidChannelState(..) => SinkError::unavailable(reason),
            _ => SinkError::down(reason),
        }
    }

    fn silent(&self) -> SinkError {
        SinkError::down(format!("RabbitMQ at {} does not answer", self.config.target()))
    }

    /// The answer to a message that is not confirmed in time.
    fn late(&self, open: &Open) -> SinkError {
        open.blocked().map_or_else(|| self.silent(), |reason| self.blocked(&reason))
    }

    fn blocked(&self, reason: &str) -> SinkError {
        SinkError::down(format!(
            "RabbitMQ at {} blocks publishers: {reason}; look at its memory and disk alarms",
            self.config.target()
        ))
    }

    async fn confirmed(
        &self,
        open: &Open,
        sent: Result<PublisherConfirm, SinkError>,
        batch: &Batch,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        match tokio::time::timeout_at(deadline.into(), sent?).await {
            Ok(Ok(Confirmation::Ack(None))) => Ok(()),
            Ok(Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)))) => Err(SinkError::closed(format!(
                "no queue takes the message ({} {}): the exchange is `{}`, the routing key `{}`; add a binding",
                returned.reply_code,
                quoted(returned.reply_text.as_str()),
                quoted(returned.delivery.exchange.as_str()),
                quoted(returned.delivery.routing_key.as_str()),
            ))),
            Ok(Ok(Confirmation::Nack(None))) => Err(SinkError::closed("RabbitMQ could not keep the message")),
            Ok(Ok(Confirmation::NotRequested)) => Err(SinkError::unavailable("RabbitMQ did not confirm the message")),
            Ok(Err(error)) => Err(self.lost(&error, batch)),
            Err(_) => Err(self.late(open)),
        }
    }

    /// Sends messages of a batch again, each on a channel of its own: if the broker closes that channel, it refuses this message.
    async fn send_apart(&self, open: &Open, batch: &Batch, indices: Vec<usize>, deadline: Instant) {
        open.begin_batch(deadline).await;
        let sending = stream::iter(indices).for_each_concurrent(MAX_CHANNELS_OF_BATCH, async |index| {
            let confirming = async {
                let channel = open.open_channel().await.map_err(|error| self.lost(&error, batch))?;
                let sent = self.publish(open, &channel, batch, &batch.messages()[index]).await;
                self.confirmed(open, sent, batch, deadline).await
            };
            let confirmed = tokio::time::timeout_at(deadline.into(), confirming).await;
            let answer = match confirmed.unwrap_or_else(|_| Err(self.late(open))) {
                // The deadline may have passed before it was sent. If the sink is down, the next batch finds out.
                Err(SinkError::Down { reason, .. }) => Err(SinkError::unavailable(reason)),
                answer => answer,
            };
            batch.answer(index, answer);
        });
        sending.await;
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
        if let Some(reason) = open.blocked() {
            return batch.fail(&self.blocked(&reason));
        }
        open.begin_batch(deadline).await;
        let mut sent = Vec::with_capacity(batch.messages().len());
        for message in batch.messages() {
            let publishing = tokio::time::timeout_at(deadline.into(), self.publish(&open, &open.channel, batch, message));
            sent.push(publishing.await.unwrap_or_else(|_| Err(self.late(&open))));
        }
        let confirming = sent.into_iter().enumerate().map(async |(index, sent)| {
            let answer = self.confirmed(&open, sent, batch, deadline).await;
            if matches!(answer, Err(SinkError::Failed { .. } | SinkError::Unavailable { .. }))
                && !open.channel.status().connected()
            {
                return PublishResult::ChannelClosed { index };
            }
            let is_down = answer.as_ref().is_err_and(SinkError::is_down);
            batch.answer(index, answer);
            if is_down { PublishResult::Down } else { PublishResult::Answered }
        });
        let results = join_all(confirming).await;
        if results.contains(&PublishResult::Down) {
            match open.blocked() {
                Some(_) => open.note_given_up(),
                None => self.cut_off(),
            }
        }
        let index_of_closed = |result| match result {
            PublishResult::ChannelClosed { index } => Some(index),
            PublishResult::Answered | PublishResult::Down => None,
        };
        let unconfirmed: Vec<usize> = results.into_iter().filter_map(index_of_closed).collect();
        if !unconfirmed.is_empty() {
            self.send_apart(&open, batch, unconfirmed, deadline).await;
        }
    }

    fn destination<'m>(&self, message: &'m Message) -> Option<Cow<'m, str>> {
        Some(self.config.routing_key.subject_of(message, clean))
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
