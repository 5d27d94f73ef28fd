//! What all sinks do alike: a bounded number of messages of many callers, which are sent in batches, several at a time, and each of
//! which is answered by itself.

mod batch;
mod current;

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

pub(super) use batch::Batch;
use current::Current;

use super::breaker::{Breaker, BreakerScope, OpenBreakers};
use super::receiver::{Receiver, SendPermit, UnavailableReceivers};
use super::rests::Rests;
use super::{CommonConfig, Message, Sink, SinkError};

/// The most messages of a sink that have no answer yet; further ones wait for a place.
pub(super) const PLACES: usize = 1_024;
/// The most places of one plugin: however slow its messages are, others get in.
const SHARE: usize = PLACES / 2;
/// How long after its deadline a batch may still report, and how long after that a caller may still be told.
const GRACE: Duration = Duration::from_millis(250);
const MAX_ID_BYTES: usize = 200;

type Answer = Result<(), SinkError>;

/// The connection of one kind of sink. It connects when it is first used, and again when it has lost its connection.
#[async_trait]
pub(super) trait Link: Send + Sync + 'static {
    /// Sends messages, and answers each of them by `deadline`: as soon as its own answer is there, where the other side answers
    /// messages one by one. Batches of one link may be sent side by side.
    async fn send(&self, batch: &Batch, deadline: Instant);

    /// The receiver of a message, where the messages of a sink have one that may be away by itself; `None` for the whole sink.
    ///
    /// # Errors
    /// When the message cannot be sent to any.
    fn receiver(&self, _message: &Message) -> Result<Option<Arc<Receiver>>, SinkError> {
        Ok(None)
    }

    /// The destination of a message: see [`Sink::destination`].
    fn destination<'m>(&self, _message: &'m Message) -> Option<Cow<'m, str>> {
        None
    }

    /// Whether this host connects to the own server of each destination, so that a destination may be unavailable to this host alone. Else one
    /// broker answers for all destinations: it gives every host the same answer, unless hosts are connected to different servers of a divided
    /// cluster.
    fn reaches_each_destination(&self) -> bool {
        false
    }

    /// Whether the link counts destinations that are closed: [`open_breakers`](Self::open_breakers).
    fn counts_closed(&self) -> bool {
        false
    }

    /// Whether no message may overtake one that was sent before it. A link that replaces this one then waits for its batches.
    fn is_ordered(&self) -> bool {
        true
    }

    /// The open breakers of its receivers.
    fn open_breakers(&self) -> OpenBreakers {
        OpenBreakers::default()
    }

    /// Which of its receivers rest: given to the link that replaces it.
    fn rests(&self) -> Rests {
        Rests::default()
    }

    /// Called when a batch did not end by its deadline: the connection is not to be used any more.
    fn cut_off(&self) {}
}

/// How messages are grouped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most messages of a batch; at least 1.
    pub(super) messages: usize,
    /// Bytes at which a batch is full; one message always fits.
    pub(super) bytes: usize,
    /// Most batches on their way at once; at least 1. A batch is on its way until the last of its messages is answered: where each
    /// has an answer of its own, the [`PLACES`] are limit enough, and a message that nobody answers holds up no batch.
    pub(super) in_flight: usize,
}

/// A sink made of a link. A clone is the same sink, with the same share of its places.
#[derive(Clone)]
pub(super) struct Batching {
    name: String,
    link: Arc<Current>,
    jobs: mpsc::Sender<Job>,
    places: Arc<Semaphore>,
    /// The places that this user may still take; `None` for a user without a limit of its own.
    share: Option<Arc<Semaphore>>,
    breaker: Arc<Breaker>,
    /// The outage of a sink that answers, but takes no message, if its link has no receivers.
    unavailable: Arc<UnavailableReceivers>,
    /// Whether the task that sends has panicked.
    panicked: watch::Receiver<bool>,
    common: CommonConfig,
}

/// A message, and who waits for its answer.
struct Job {
    message: Message,
    caller: Caller,
    receiver: Option<Arc<Receiver>>,
    /// When the message has waited to be sent for too long.
    give_up_at: Instant,
}

impl Job {
    /// With its receiver's permit. `None` if it was answered instead: the receiver may have failed since the message was queued.
    fn admitted(mut self, now: Instant) -> Option<Self> {
        if let Some(receiver) = self.receiver.take() {
            match receiver.admit(&self.message.id, now) {
                Ok(permit) => self.caller.permit = Some(permit),
                Err(error) => {
                    self.caller.hear(Err(error));
                    return None;
                }
            }
        }
        Some(self)
    }
}

/// Who waits for the answer of a message.
struct Caller {
    answer: oneshot::Sender<Answer>,
    /// From when the message is sent, if it has a receiver of its own.
    permit: Option<SendPermit>,
    /// Notes the answer, if the message has no receiver of its own.
    unavailable: Option<Arc<UnavailableReceivers>>,
    /// Whether the operator decides about the message's destination.
    has_trusted_destination: bool,
    /// See [`Link::reaches_each_destination`].
    reaches_each_destination: bool,
    /// See [`Link::counts_closed`].
    link_counts_closed: bool,
    /// The place of the message, and of a share too where there is one.
    _places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl Caller {
    /// Gives the place back, too. A caller that has gone away does not get its answer.
    fn hear(self, answer: Answer) {
        let now = Instant::now();
        let answer = match (self.permit, answer) {
            (Some(permit), answer) => permit.judge(answer, now),
            (None, Err(SinkError::Unavailable { reason, .. })) if !self.reaches_each_destination => {
                Err(SinkError::Closed { reason })
            }
            (None, answer) => answer,
        };
        if let Some(unavailable) = &self.unavailable {
            // The link counts the receivers that it lets rest.
            let is_counted_by_link = match answer {
                Err(SinkError::Unavailable { retry_after, .. }) => retry_after.is_some(),
                Err(SinkError::Closed { .. }) => self.link_counts_closed,
                _ => false,
            };
            unavailable.note(&answer, self.has_trusted_destination && !is_counted_by_link, now);
        }
        let _ = self.answer.send(answer);
    }
}

impl Batching {
    /// A sink whose link leads to `target`. Starts the task that sends; it ends when this value is gone. Within a tokio runtime.
    pub(super) fn start(name: &str, link: Arc<dyn Link>, target: String, common: CommonConfig, limits: Limits) -> Self {
        let (sender, jobs) = mpsc::channel(PLACES);
        let link = Arc::new(Current::new(link, target, limits.in_flight));
        let breaker = Arc::new(Breaker::new(name, BreakerScope::Sink));
        let shipping =
            Arc::new(Shipping { name: name.to_owned(), link: link.clone(), breaker: breaker.clone(), timeout: common.timeout });
        let (noting, panicked) = watch::channel(false);
        tokio::spawn(async move {
            let _noting = PanicNote(noting);
            keep_sending(shipping, jobs, limits).await;
        });
        let places = Arc::new(Semaphore::new(PLACES));
        let unavailable = Arc::default();
        Self { name: name.to_owned(), link, jobs: sender, places, share: None, breaker, unavailable, panicked, common }
    }

    /// The same sink for one more user, who gets at most half of its places.
    pub(super) fn with_own_share(&self) -> Self {
        Self { share: Some(Arc::new(Semaphore::new(SHARE))), ..self.clone() }
    }

    /// The sources of its state: its breaker, its outage beside that, the link and its target. The link is gone when no user
    /// of the sink is left.
    pub(super) fn watched(&self) -> (Arc<Breaker>, Arc<UnavailableReceivers>, Weak<dyn Link>, watch::Receiver<String>) {
        let link: Arc<dyn Link> = self.link.clone();
        (self.breaker.clone(), self.unavailable.clone(), Arc::downgrade(&link), self.link.target())
    }

    /// Whether the task that sends has panicked: it answers no message any more.
    pub(super) fn panicked(&self) -> watch::Receiver<bool> {
        self.panicked.clone()
    }

    /// Which of its receivers rest, for the next link.
    pub(super) fn rests(&self) -> Rests {
        self.link.rests()
    }

    /// Sends by another link, which leads to `target`. Waits until the batches on their way have ended, if messages have an order.
    pub(super) async fn replace(&self, link: Arc<dyn Link>, target: String) {
        self.link.replace(link, target).await;
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
        let now = Instant::now();
        self.breaker.look(now)?;
        let receiver = self.link.receiver(message)?;
        if let Some(receiver) = &receiver {
            receiver.look(now)?;
        }
        let taking = async {
            // The share comes first: whoever has used up its own takes no place of the others, not even in their line.
            let share = match &self.share {
                Some(share) => Some(place_of(share).await),
                None => None,
            };
            (place_of(&self.places).await, share)
        };
        let Ok(places) = tokio::time::timeout_at(give_up_at.into(), taking).await else {
            return Err(crowded(&self.name, self.common.timeout));
        };
        let (answer, answered) = oneshot::channel();
        let unavailable = receiver.is_none().then(|| self.unavailable.clone());
        let has_trusted_destination = message.trusts_subject || message.subject.is_empty();
        let caller = Caller {
            answer,
            permit: None,
            unavailable,
            has_trusted_destination,
            reaches_each_destination: self.link.reaches_each_destination(),
            link_counts_closed: self.link.counts_closed(),
            _places: places,
        };
        let job = Job { message: message.clone(), caller, receiver, give_up_at };
        // There is room: whatever is in the channel has a place.
        self.jobs.try_send(job).map_err(|_| self.stopped())?;
        Ok(answered)
    }

    fn late(&self) -> SinkError {
        let timeout = self.common.timeout;
        SinkError::unavailable(format!("the sink {} did not confirm the message within {timeout:?}", self.name))
    }

    fn stopped(&self) -> SinkError {
        SinkError::unavailable(format!("the sink {} has stopped", self.name))
    }
}

/// Waits for one of these places; whoever asked first has it first.
async fn place_of(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.clone().acquire_owned().await.expect("nobody closes it")
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

    fn destination(&self, message: &Message) -> Option<u64> {
        let destination = self.link.destination(message)?;
        Some(BuildHasherDefault::<DefaultHasher>::default().hash_one(&*destination))
    }
}

/// Sends the batches of one sink.
struct Shipping {
    name: String,
    link: Arc<Current>,
    breaker: Arc<Breaker>,
    timeout: Duration,
}

/// The answer for a message that was never sent: nothing is wrong with it, nor with the receiver.
fn crowded(sink: &str, timeout: Duration) -> SinkError {
    SinkError::crowded(format!("the sink {sink} had so many messages to send that this one had no turn within {timeout:?}"))
}

/// Sets the value if it is dropped by a panic.
struct PanicNote(watch::Sender<bool>);

impl Drop for PanicNote {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_replace(true);
        }
    }
}

async fn keep_sending(shipping: Arc<Shipping>, mut jobs: mpsc::Receiver<Job>, limits: Limits) {
    let wanted = limits.messages.max(1);
    let mut waiting = Vec::new();
    loop {
        // Waits for messages without a permit: the link of a sink without messages can be replaced at once.
        if waiting.is_empty() && jobs.recv_many(&mut waiting, wanted).await == 0 {
            return;
        }
        let permit = shipping.link.permit().await;
        while waiting.len() < wanted {
            let Ok(job) = jobs.try_recv() else { break };
            waiting.push(job);
        }
        // A caller that has gone away wants nothing sent.
        waiting.retain(|job| !job.caller.answer.is_closed());
        let now = Instant::now();
        for late in waiting.extract_if(.., |job| job.give_up_at <= now) {
            late.caller.hear(Err(crowded(&shipping.name, shipping.timeout)));
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

impl Shipping {
    /// Sends a batch, and sees to it that all its callers are answered.
    async fn ship(self: Arc<Self>, jobs: Vec<Job>, permit: OwnedSemaphorePermit) {
        let now = Instant::now();
        let pass = match self.breaker.admit(now) {
            Ok(pass) => pass,
            Err(error) => return jobs.into_iter().for_each(|job| job.caller.hear(Err(error.clone()))),
        };
        let jobs: Vec<Job> = jobs.into_iter().filter_map(|job| job.admitted(now)).collect();
        if jobs.is_empty() {
            return;
        }
        let batch = Batch::new(jobs, pass);
        let deadline = Instant::now() + self.timeout;
        let sending = self.link.send(&batch, deadline);
        let without_answer = match tokio::time::timeout_at((deadline + GRACE).into(), sending).await {
            Ok(()) => SinkError::failed(format!("the sink {} gave no answer", self.name)),
            Err(_) => {
                self.link.cut_off();
                SinkError::down(format!("the sink {} does not answer", self.name))
            }
        };
        // Not before it is cut off: the permit keeps the link from being replaced.
        drop(permit);
        batch.end(&without_answer);
    }
}

#[cfg(test)]
mod tests;
