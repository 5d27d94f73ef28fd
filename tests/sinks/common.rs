//! Short ways to say what the facts are about.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use outbox::event::{Envelope, Event};
use outbox::sink::{Message, Sink, SinkConfig, SinkError, Sinks};
use support::{PATIENCE, eventually};

/// A sink of this configuration.
pub(crate) fn sink(config: serde_json::Value) -> Arc<dyn Sink> {
    let sinks = sinks(config);
    sinks.get("tested").expect("it is there")
}

/// The same, with its name `tested`.
pub(crate) fn sinks(config: serde_json::Value) -> Sinks {
    let config: SinkConfig = serde_json::from_value(config).expect("a good configuration");
    Sinks::connect(&[("tested".to_owned(), config)].into()).expect("no faults")
}

/// The message of an order, with an event of its own.
pub(crate) fn order(number: usize) -> Message {
    let envelope = Envelope::new("OrderPlaced")
        .aggregate("Order", number.to_string())
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("Nats-Rollup", "all")
        .header("CC", "elsewhere")
        .json(&number)
        .expect("a good envelope");
    Message::of_event(&Arc::new(Event::of(envelope).build()))
}

/// With a subject that the operator chose.
pub(crate) fn to(subject: &str, message: Message) -> Message {
    Message { subject: subject.to_owned(), trusts_subject: true, ..message }
}

pub(crate) async fn send_one(sink: &dyn Sink, message: Message) -> Result<(), SinkError> {
    sink.send(&[message]).await.remove(0)
}

/// Messages that nobody confirms: they are with their sink, and their answers stay out.
#[derive(Default)]
pub(crate) struct Unconfirmed<'s>(Vec<Sending<'s>>);

type Sending<'s> = Pin<Box<dyn Future<Output = Vec<Result<(), SinkError>>> + Send + 's>>;

impl<'s> Unconfirmed<'s> {
    /// Sends one more, before everything that is sent after this.
    pub(crate) async fn send(&mut self, sink: &'s dyn Sink, message: Message) {
        self.0.push(Box::pin(async move { sink.send(&[message]).await }));
        self.have_no_answer().await;
    }

    pub(crate) async fn have_no_answer(&mut self) {
        poll_fn(|context| {
            for sending in &mut self.0 {
                if let Poll::Ready(answer) = sending.as_mut().poll(context) {
                    panic!("a message that nobody confirms was answered: {answer:?}");
                }
            }
            Poll::Ready(())
        })
        .await;
    }
}

/// Sends a message until it is confirmed, as a host would, and says how often it was not.
pub(crate) async fn send_until_confirmed(sink: &dyn Sink, message: Message) -> usize {
    let mut failures = 0;
    eventually("the message is confirmed", async || match send_one(sink, message.clone()).await {
        Ok(()) => true,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            failures += 1;
            false
        }
    })
    .await;
    failures
}

/// A name that no other test uses.
pub(crate) fn unique(prefix: &str) -> String {
    let id = order(0).event_id.to_string();
    format!("{prefix}{id}")
}

/// Sends these messages, each in a task, while `meanwhile` is done after the first hundred are confirmed; each is sent again
/// until it is confirmed. Patience begins when `meanwhile` has ended: a broker may take long to start.
pub(crate) async fn send_all_while(sink: Arc<dyn Sink>, messages: Vec<Message>, meanwhile: impl Future<Output = ()>) {
    let confirmed = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let over: Arc<OnceLock<Instant>> = Arc::default();
    let places = Arc::new(tokio::sync::Semaphore::new(32));
    let count = messages.len();
    let mut tasks = Vec::with_capacity(count);
    let sending = {
        let (confirmed, over) = (confirmed.clone(), over.clone());
        tokio::spawn(async move {
            for message in messages {
                let place = places.clone().acquire_owned().await.expect("nobody closes it");
                let (sink, confirmed, over) = (sink.clone(), confirmed.clone(), over.clone());
                tasks.push(tokio::spawn(async move {
                    // `eventually` cannot be sent to another thread.
                    while let Err(error) = sink.send(std::slice::from_ref(&message)).await.remove(0) {
                        // As a relay does: a broker that has just come back may not know its queues yet.
                        assert!(over.get().is_none_or(|over| over.elapsed() < PATIENCE), "{error}");
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    confirmed.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    drop(place);
                }));
            }
            for task in tasks {
                task.await.expect("no panic");
            }
        })
    };
    let seen = || confirmed.load(std::sync::atomic::Ordering::SeqCst);
    eventually("a hundred messages are confirmed", async || seen() >= 100).await;
    assert!(seen() < count, "the middle has not passed");
    meanwhile.await;
    over.set(Instant::now()).expect("once");
    sending.await.expect("no panic");
    assert_eq!(seen(), count);
}
