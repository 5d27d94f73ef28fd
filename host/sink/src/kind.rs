//! What the host asks of a kind of sink.

use super::CommonConfig;
use super::batching::Batching;

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

    /// Starts the sink `name`; it connects with its first message. For settings without faults, within a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with the settings all the same.
    fn start(&self, name: &str) -> Result<Batching, String>;
}
