//! What the host asks of a kind of sink.

use std::sync::Arc;

use super::CommonConfig;
use super::batching::{Limits, Link};
use super::rests::Rests;

/// The settings of one kind of sink.
pub(super) trait Kind {
    /// The kind, as it is written: `nats`.
    fn kind(&self) -> &'static str;

    /// Where its messages go, without credentials.
    fn target(&self) -> String;

    /// The settings that every kind of sink has.
    fn common(&self) -> CommonConfig;

    /// What is wrong with the settings that only this kind has, one text each; names begin with `prefix`. Nothing is connected
    /// to; files that are named are looked at.
    fn faults(&self, prefix: &str) -> Vec<String>;

    /// How messages are grouped.
    fn limits(&self) -> Limits;

    /// The connection of the sink `name`, which connects with its first message. `rests` are those of the link that it replaces. For
    /// settings without faults, within a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with the settings all the same.
    fn link(&self, name: &str, rests: Rests) -> Result<Arc<dyn Link>, String>;
}
