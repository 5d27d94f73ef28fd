//! What all sinks do alike: one bounded queue for many callers, batches of the messages that wait, several batches in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::breaker::Breaker;
use super::{CommonConfig, Message, Sink, SinkError};

/// The most messages that wait to be sent; further callers wait for room.
const QUEUE: usize = 1_024;
/// How long after its deadline a batch may still report, and how long after that a caller may still be told.
const GRACE: Duration = Duration::from_millis(250);
/// After how long a message that found no room may be sent again.
const CROWDED_REST: Duration = Duration::from_secs(1);
const MAX_ID_BYTES: usize = 200;

type Answer = Result<(), SinkError>;

/// The connection of one kind of sink. It connects when it is first used, and again when it has lost its connection.
#[async_trait]
pub(super) trait Link: Send + Sync + 'static {
    /// Sends messages; one answer for each, in their order, by `deadline`. Batches of one link may be sent side by side.
    async fn send(&self, messages: &[Message], deadline: Instant) -> Vec<Answer>;

    /// Called when a batch did not answer by its deadline: the connection is not to be used any more.
    fn cut_off(&self) {}
}

/// How messages are grouped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most messages of a batch; at least 1.
    pub(super) messages: usize,
    /// Bytes at which a batch is full; one message always fits.
    pub(super) bytes: usize,
    /// Most batches on their way at once; at least 1.
    pub(super) in_flight: usize,
}

/// A sink made of a link.
pub(super) struct Batching {
    name: String,
    jobs: mpsc::Sender<Job>,
    breaker: Arc<Breaker>,
    common: CommonConfig,
}

/// A message, and the channel for its answer.
struct Job {
    message: Message,
    answer: oneshot::Sender<Answer>,
    /// When the message has waited to be sent for too long.
    give_up_at: Instant,
}

impl Batching {
    /// Starts the task that sends; it ends when this value is gone. Within a tokio runtime.
    pub(super) fn start(name: &str, link: impl Link, common: CommonConfig, limits: Limits) -> Self {
        let (sender, jobs) = mpsc::channel(QUEUE);
        let breaker = Arc::new(Breaker::new(name));
        let shipping = Arc::new(Shipping { name: name.to_owned(), link, breaker: breaker.clone(), timeout: common.timeout });
        tokio::spawn(keep_sending(shipping, jobs, limits));
        Self { name: name.to_owned(), jobs: sender, breaker, common }
    }

    /// Checks a message before it is queued.
    fn check(&self, message: &Message) -> Answer {
        if message.id.is_empty() || message.id.len() > MAX_ID_BYTES || message.id.chars().any(char::is_control) {
            return Err(SinkError::rejected(format!(
                "the message's id is not 1 to {MAX_ID_BYTES} bytes without control characters"
            )));
        }
        if !message.subject.is_empty() && !message.trusts_subject && !self.common.allows(&message.subject) {
            let subject = super::error::quoted(&message.subject);
            return Err(SinkError::rejected(format!(
                "the subject `{subject}` is not among sinks.{}.subjects; add it there, or leave the subject to the sink",
                self.name
            )));
        }
        Ok(())
    }

    /// Queues one message. Dropping what this returns takes the message back, if it was not sent yet.
    async fn queue(&self, message: &Message, give_up_at: Instant) -> Result<oneshot::Receiver<Answer>, SinkError> {
        self.check(message)?;
        self.breaker.look(Instant::now())?;
        let (answer, answered) = oneshot::channel();
        let job = Job { message: message.clone(), answer, give_up_at };
        match tokio::time::timeout_at(give_up_at.into(), self.jobs.send(job)).await {
            Ok(Ok(())) => Ok(answered),
            Ok(Err(_)) => Err(self.stopped()),
            Err(_) => Err(crowded(&self.name, self.common.timeout)),
        }
    }

    fn late(&self) -> SinkError {
        let timeout = self.common.timeout;
        SinkError::unavailable(format!("the sink {} did not confirm the message within {timeout:?}", self.name))
    }

    fn stopped(&self) -> SinkError {
        SinkError::unavailable(format!("the sink {} has stopped", self.name))
    }
}

#[async_trait]
impl Sink for Batching {
    async fn send(&self, messages: &[Message]) -> Vec<Answer> {
        let give_up_at = Instant::now() + self.common.timeout;
        // A message may be sent at the last moment, and then has the whole timeout.
        let last = give_up_at + self.common.timeout + 2 * GRACE;
        let mut queued = Vec::with_capacity(messages.len());
        for message in messages {
            queued.push(self.queue(message, give_up_at).await);
        }
        let mut answers = Vec::with_capacity(messages.len());
        for job in queued {
            answers.push(match job {
                Err(error) => Err(error),
                Ok(answered) => match tokio::time::timeout_at(last.into(), answered).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) => Err(self.stopped()),
                    Err(_) => Err(self.late()),
                },
            });
        }
        answers
    }
}

/// Sends the batches of one sink.
struct Shipping<L> {
    name: String,
    link: L,
    breaker: Arc<Breaker>,
    timeout: Duration,
}

/// The answer for a message that was never sent: nothing is wrong with it, nor with the receiver.
fn crowded(sink: &str, timeout: Duration) -> SinkError {
    let reason = format!("the sink {sink} had so many messages to send that this one had no turn within {timeout:?}");
    SinkError::Unavailable { reason, retry_after: Some(CROWDED_REST) }
}

async fn keep_sending<L: Link>(shipping: Arc<Shipping<L>>, mut jobs: mpsc::Receiver<Job>, limits: Limits) {
    let in_flight = Arc::new(Semaphore::new(limits.in_flight.max(1)));
    let mut waiting = Vec::new();
    loop {
        let permit = in_flight.clone().acquire_owned().await.expect("nobody closes it");
        let wanted = limits.messages.max(1);
        if waiting.len() < wanted {
            // Takes the messages that are there; waits only if there are none.
            let room = wanted - waiting.len();
            if waiting.is_empty() && jobs.recv_many(&mut waiting, room).await == 0 {
                return;
            }
            while waiting.len() < wanted {
                let Ok(job) = jobs.try_recv() else { break };
                waiting.push(job);
            }
        }
        // A caller that has gone away wants nothing sent.
        waiting.retain(|job| !job.answer.is_closed());
        let now = Instant::now();
        for late in waiting.extract_if(.., |job| job.give_up_at <= now) {
            let _ = late.answer.send(Err(crowded(&shipping.name, shipping.timeout)));
        }
        let batch: Vec<Job> = waiting.drain(..full_at(&waiting, limits)).collect();
        if !batch.is_empty() {
            tokio::spawn(shipping.clone().ship(batch, permit));
        }
    }
}

/// How many of the jobs make a batch.
fn full_at(waiting: &[Job], limits: Limits) -> usize {
    let mut bytes = 0;
    let fits = waiting.iter().take_while(|job| {
        let empty = bytes == 0;
        bytes += job.message.size_bytes();
        empty || bytes <= limits.bytes
    });
    fits.take(limits.messages.max(1)).count()
}

impl<L: Link> Shipping<L> {
    /// Sends a batch, and answers its callers.
    async fn ship(self: Arc<Self>, batch: Vec<Job>, permit: OwnedSemaphorePermit) {
        let (messages, askers): (Vec<_>, Vec<_>) = batch.into_iter().map(|job| (job.message, job.answer)).unzip();
        let answers = self.answers(&messages).await;
        drop(permit);
        for (asker, answer) in askers.into_iter().zip(answers) {
            // A caller that has gone away does not get its answer.
            let _ = asker.send(answer);
        }
    }

    async fn answers(&self, messages: &[Message]) -> Vec<Answer> {
        let pass = match self.breaker.admit(Instant::now()) {
            Ok(pass) => pass,
            Err(error) => return vec![Err(error); messages.len()],
        };
        let deadline = Instant::now() + self.timeout;
        let sending = self.link.send(messages, deadline);
        let mut answers = match tokio::time::timeout_at((deadline + GRACE).into(), sending).await {
            Ok(answers) => answers,
            Err(_) => {
                self.link.cut_off();
                vec![Err(SinkError::down(format!("the sink {} does not answer", self.name))); messages.len()]
            }
        };
        // A link that forgets a message has not confirmed it.
        answers.resize_with(messages.len(), || Err(SinkError::unavailable(format!("the sink {} gave no answer", self.name))));
        // One confirmed message proves that the sink works: the failures of the others concern those messages alone.
        if answers.iter().any(Result::is_ok) {
            for answer in &mut answers {
                if let Err(SinkError::Down { reason, .. }) = answer {
                    *answer = Err(SinkError::unavailable(std::mem::take(reason)));
                }
            }
        }
        let down = answers.iter().find_map(|answer| match answer {
            Err(SinkError::Down { reason, .. }) => Some(reason.clone()),
            _ => None,
        });
        let rest = pass.record(down.as_deref(), Instant::now());
        for answer in &mut answers {
            if let Err(SinkError::Down { retry_after, .. }) = answer {
                *retry_after = rest;
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests;
