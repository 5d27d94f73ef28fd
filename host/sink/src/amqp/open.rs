//! An open connection to RabbitMQ.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, Stream, StreamExt};
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection, Event};

use crate::error::quoted;
use crate::stream::Lifeline;

/// The most bytes of headers. They travel in one frame, and a broker closes the connection over one that is too large.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The bytes that a frame of headers holds beside them.
const FRAME_REST: usize = 2 << 10;
/// How long a connection that was given up may take to close in order.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// The longest wait for the confirmations of messages that were given up.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// An open connection, and the channel on it that messages are published on.
pub(super) struct Open {
    pub(super) channel: Channel,
    /// It is closed when this value is dropped.
    connection: Connection,
    alarm: Mutex<Alarm>,
    /// Whether messages were given up while the broker blocked publishers. Their confirmations still come.
    has_given_up: AtomicBool,
    /// Without it lapin would wait, in a thread of its own, for a broker that never answers. `None` while this value is dropped.
    lifeline: Option<Lifeline>,
}

/// Why the broker last blocked publishers.
struct Alarm {
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
    reason: String,
}

impl Open {
    pub(super) fn new(channel: Channel, connection: Connection, lifeline: Lifeline) -> Self {
        let alarm = Alarm { events: Box::pin(connection.events_listener()), reason: "it has an alarm".to_owned() };
        Self { channel, connection, alarm: Mutex::new(alarm), has_given_up: AtomicBool::new(false), lifeline: Some(lifeline) }
    }

    /// Another channel of this connection.
    pub(super) async fn open_channel(&self) -> lapin::Result<Channel> {
        open_channel(&self.connection).await
    }

    pub(super) fn works(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }

    /// The broker's reason to block publishers; `None` if it does not block them. It then reads nothing from this connection, and publishes
    /// what was sent once its alarm ends. So the connection must be kept: another one would only publish the same messages again.
    ///
    /// Each batch calls this, also while the broker does not block: lapin collects events without bound, even without a listener. Between
    /// two batches their number is bounded by the bytes that the [`Lifeline`] lets the broker send.
    pub(super) fn blocked(&self) -> Option<String> {
        let mut alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(Some(event)) = alarm.events.next().now_or_never() {
            if let Event::ConnectionBlocked(reason) = event {
                alarm.reason = quoted(&reason);
            }
        }
        (self.works() && self.connection.status().blocked()).then(|| alarm.reason.clone())
    }

    /// Notes that messages were given up while the broker blocked publishers.
    pub(super) fn note_given_up(&self) {
        self.has_given_up.store(true, Ordering::Relaxed);
    }

    /// The broker may send as much again as it may for a batch. Waits for the confirmations of messages that were given up: lapin collects
    /// them until then. A wait that takes too long is not repeated.
    pub(super) async fn begin_batch(&self, deadline: Instant) {
        self.lifeline.iter().for_each(Lifeline::allow);
        if self.has_given_up.swap(false, Ordering::Relaxed) {
            // If it fails, so does the batch. lapin never ends the wait if another batch publishes meanwhile.
            let until = deadline.min(Instant::now() + CONFIRMED_WITHIN);
            let _ = tokio::time::timeout_at(until.into(), self.channel.wait_for_confirms()).await;
        }
    }

    /// Most bytes of a message's headers on this connection.
    pub(super) fn max_header_bytes(&self) -> usize {
        let frame = usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX);
        MAX_HEADER_BYTES.min(frame.saturating_sub(FRAME_REST))
    }
}

/// Opens a channel on which the broker confirms messages.
pub(super) async fn open_channel(connection: &Connection) -> lapin::Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
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
