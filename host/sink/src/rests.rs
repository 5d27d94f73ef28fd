//! The receivers of a sink that rest. They outlive a link: the link that replaces it takes them over.

use std::any::Any;
use std::sync::Arc;

/// Which receivers of a sink rest. Their type is that of the kind of sink; empty for a kind whose links keep none.
#[derive(Clone, Default)]
pub(super) struct Rests(Option<Arc<dyn Any + Send + Sync>>);

#[cfg_attr(
    not(any(feature = "http", feature = "kafka", feature = "redis")),
    allow(dead_code, reason = "other kinds of sinks keep none")
)]
impl Rests {
    pub(super) fn new<T: Send + Sync + 'static>(receivers: Arc<T>) -> Self {
        Self(Some(receivers))
    }

    /// The receivers; `None` if empty, or of another type.
    pub(super) fn get<T: Send + Sync + 'static>(self) -> Option<Arc<T>> {
        self.0?.downcast().ok()
    }
}
