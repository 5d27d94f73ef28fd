//! What a [`PluginHost`](super::PluginHost) is asked: one call for one event.

use std::sync::Arc;

use outbox_event::Event;

use super::outside::Disturbance;
use super::report::InstanceUse;

/// One call of `on-event`.
#[derive(Clone, Debug)]
pub struct Call {
    /// The event. One with the sequence 0 is in no table: it can be answered, but nothing can be emitted or kept for it.
    pub event: Arc<Event>,
    /// In which instance. A kept one is kept again after a clean end; without one, or after anything else, a fresh one is made.
    /// Default fresh.
    pub instance: InstanceUse,
    /// How often the listener has put this event off before, as it is told. Default 0.
    pub deferrals: u32,
    /// Counted failures after which the event is dead, as it is told. Default: as its manifest says, or 10.
    pub max_attempts: Option<u32>,
    /// Trouble for one of its calls to the outside. Default none.
    pub disturbance: Option<Disturbance>,
}

impl From<Event> for Call {
    fn from(event: Event) -> Self {
        Arc::new(event).into()
    }
}

impl From<Arc<Event>> for Call {
    fn from(event: Arc<Event>) -> Self {
        Self { event, instance: InstanceUse::Fresh, deferrals: 0, max_attempts: None, disturbance: None }
    }
}

impl Call {
    /// The same call in the instance that is kept.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { instance: InstanceUse::Kept, ..self }
    }

    /// The same call with trouble for one of its calls to the outside.
    #[must_use]
    pub fn disturbed(self, disturbance: Disturbance) -> Self {
        Self { disturbance: Some(disturbance), ..self }
    }
}
