//! The signals that ask the program to stop.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// Signals within this time after the first count as the first.
const ECHO: Duration = Duration::from_millis(100);

/// The two signals that mean: please stop.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens from now on: a signal during the start is not lost.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, "signals cannot be received").because(error));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for another one, after the first. Ctrl-C under a program that passes signals on arrives twice within a moment;
    /// that is one wish, not two.
    pub(crate) async fn again(&mut self) {
        let echo = tokio::time::sleep(ECHO);
        tokio::pin!(echo);
        loop {
            tokio::select! {
                () = &mut echo => break,
                () = self.wait() => {}
            }
        }
        self.wait().await;
    }

    /// Waits for the next one.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
