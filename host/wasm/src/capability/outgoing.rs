//! What a call has sent outside: requests and messages, numbered for each event, so that a receiver can tell a repeat.

use std::sync::Arc;

use outbox_event::Event;
use outbox_event::text::keepable;

/// What kind of message or request is numbered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counter {
    Requests,
    Messages,
}

/// The events of a call, and how much was sent for each.
#[derive(Default)]
pub(super) struct Outgoing {
    /// `None` in a call for several events, and in `describe`.
    event: Option<Sent>,
    /// The events of a call for several.
    events: Vec<Sent>,
}

struct Sent {
    event: Arc<Event>,
    requests: u32,
    messages: u32,
}

impl Sent {
    fn of(event: Arc<Event>) -> Self {
        Self { event, requests: 0, messages: 0 }
    }
}

impl Outgoing {
    /// Begins a call for one event, or for none.
    pub(super) fn begin(&mut self, event: Option<Arc<Event>>) {
        self.event = event.map(Sent::of);
        self.events.clear();
    }

    /// Begins a call for several events.
    pub(super) fn begin_many(&mut self, events: Vec<Arc<Event>>) {
        self.event = None;
        self.events = events.into_iter().map(Sent::of).collect();
    }

    /// The event that something is sent for, and its number: for the event of the call, or for the one of this id in a call for
    /// several. `None` when a call for several does not say for which.
    ///
    /// # Errors
    /// When the call is not for an event of this id.
    pub(super) fn next_of(&mut self, counter: Counter, id: Option<&str>) -> Result<Option<(Arc<Event>, u32)>, String> {
        let mut all = self.event.iter_mut().chain(&mut self.events);
        let named = match id {
            Some(id) => {
                let named = all.find(|sent| sent.event.id().as_str() == id);
                Some(named.ok_or_else(|| format!("this call has no event with the id `{}`", keepable(id, 50)))?)
            }
            None => self.event.as_mut(),
        };
        Ok(named.map(|sent| {
            let count = match counter {
                Counter::Requests => &mut sent.requests,
                Counter::Messages => &mut sent.messages,
            };
            *count += 1;
            (sent.event.clone(), *count)
        }))
    }
}
