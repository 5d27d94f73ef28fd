//! The signals that ask the program to stop.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// Signals within this time after the first count as the first.
const ECHO: Duration = Duration::from_millis(100);

/// The signals that ask the program to stop.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    /// The terminal was closed. `None` if the process ignores this signal, as `nohup` starts it.
    hangup: Option<Signal>,
}

impl Stop {
    /// Listens from now on: a signal during the start is not lost.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, "signals cannot be received").because(error));
        let hangup = if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            quit: listen(SignalKind::quit())?,
            hangup,
        })
    }

    /// Waits for a second signal, after the first. Ctrl-C under a program that passes signals on arrives twice within a moment, and counts
    /// as one. A hangup is no second signal: a shell and the kernel both send it when a terminal is closed.
    pub(crate) async fn again(&mut self) {
        let echo = tokio::time::sleep(ECHO);
        tokio::pin!(echo);
        loop {
            tokio::select! {
                () = &mut echo => break,
                () = self.wait() => {}
            }
        }
        self.hangup = None;
        self.wait().await;
    }

    /// Waits for the next signal.
    pub(crate) async fn wait(&mut self) {
        let Self { interrupt, terminate, quit, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = quit.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// Whether this process was started to ignore hangups, as `nohup` does it.
fn ignores_hangup() -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    #[expect(unsafe_code, reason = "no safe wrapper reads how a process handles a signal")]
    // SAFETY: without a new action, the call only writes the current one, and an action of zeros is a valid one if the call fails.
    let action = unsafe {
        libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}
