//! A listener that can be met.

use std::sync::{Arc, Mutex, PoisonError};

use outbox::{DispatchResult, Event, EventId, Failure, Listener};
use tokio::sync::{Semaphore, mpsc};

use crate::in_time;

type Answer = dyn Fn(&Event) -> Result<DispatchResult, Failure> + Send + Sync;

/// A listener that tells of every call ("started"), waits to be let go if asked to ("you may finish"), and remembers all.
pub struct Recorder {
    answer: Arc<Answer>,
    gate: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<Arc<Event>>,
    started: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arc<Event>>>,
    calls: Arc<Mutex<Vec<Arc<Event>>>>,
}

impl Recorder {
    /// Is done with every event at once.
    #[must_use]
    pub fn done() -> Self {
        Self::answering(|_| Ok(DispatchResult::Done))
    }

    /// Answers every event at once.
    pub fn answering(answer: impl Fn(&Event) -> Result<DispatchResult, Failure> + Send + Sync + 'static) -> Self {
        Self::new(answer, Semaphore::MAX_PERMITS)
    }

    /// Is done with an event only when [`finish`](Self::finish) lets it go.
    #[must_use]
    pub fn held() -> Self {
        Self::held_answering(|_| Ok(DispatchResult::Done))
    }

    /// Answers an event only after [`finish`](Self::finish).
    pub fn held_answering(answer: impl Fn(&Event) -> Result<DispatchResult, Failure> + Send + Sync + 'static) -> Self {
        Self::new(answer, 0)
    }

    fn new(answer: impl Fn(&Event) -> Result<DispatchResult, Failure> + Send + Sync + 'static, open: usize) -> Self {
        let (sender, started) = mpsc::unbounded_channel();
        Self {
            answer: Arc::new(answer),
            gate: Arc::new(Semaphore::new(open)),
            sender,
            started: tokio::sync::Mutex::new(started),
            calls: Arc::default(),
        }
    }

    /// The listener; any number of them write into the same record.
    pub fn listener(&self) -> impl Listener + use<> {
        let (answer, gate, sender, calls) = (self.answer.clone(), self.gate.clone(), self.sender.clone(), self.calls.clone());
        move |event: Arc<Event>| {
            let (answer, gate, sender, calls) = (answer.clone(), gate.clone(), sender.clone(), calls.clone());
            async move {
                calls.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
                // Nobody may be listening; the record is kept all the same.
                let _ = sender.send(event.clone());
                if gate.available_permits() < Semaphore::MAX_PERMITS / 2 {
                    gate.acquire().await.expect("the gate is never closed").forget();
                }
                answer(&event)
            }
        }
    }

    /// Waits for the next call that was not met yet.
    pub async fn started(&self) -> Arc<Event> {
        let mut started = self.started.lock().await;
        in_time("the listener is called", started.recv()).await.expect("the recorder holds a sender itself")
    }

    /// Lets this many calls go, those that wait or those to come.
    pub fn finish(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    /// Every call so far, in the order of their starts.
    pub fn calls(&self) -> Vec<Arc<Event>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ids of every call so far, in the order of their starts.
    pub fn ids(&self) -> Vec<EventId> {
        self.calls().iter().map(|event| event.id()).collect()
    }

    /// How many calls there were.
    pub fn count(&self) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
