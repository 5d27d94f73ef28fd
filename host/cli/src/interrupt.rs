//! Ctrl-C during a command that writes: what it must say then depends on how far it had come.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// Ctrl-C, heard from now on.
pub(crate) struct Interrupt(Signal);

impl Interrupt {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listened = signal(SignalKind::interrupt());
        listened.map(Self).map_err(|error| Failure::new(Exit::Failed, "signals cannot be received").because(error))
    }

    /// Waits for it.
    pub(crate) async fn heard(&mut self) {
        self.0.recv().await;
    }

    /// Does this, unless Ctrl-C comes first; then ends with that and what `certain` says.
    pub(crate) async fn unless<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
        certain: impl FnOnce() -> String,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            () = self.heard() => Err(interrupted().detail(certain())),
        }
    }
}

/// As a command ends with it.
pub(crate) fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted")
}
