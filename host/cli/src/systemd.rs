//! What the host tells systemd, for a unit of `Type=notify`: that it delivers, how it is, that it lives, that it stops.
//!
//! Where the environment names no socket (`NOTIFY_SOCKET`), nothing is sent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use outbox::{Outbox, Store};
use sd_notify::NotifyState;

use crate::output::shown;

/// How often the status is looked at where no watchdog asks for more.
const LOOK: Duration = Duration::from_secs(5);
/// How often the watchdog is told within the time that it allows.
const TIMES: u32 = 3;

/// The host waits for something before it delivers.
pub(crate) async fn waiting(what: &str) {
    status(format!("waiting: {what}")).await;
}

/// The host delivers.
pub(crate) async fn ready() {
    send(|| sd_notify::notify(&[NotifyState::Ready])).await;
}

/// The host was told to stop, and finishes what is queued.
pub(crate) async fn stopping() {
    send(|| sd_notify::notify(&[NotifyState::Stopping])).await;
}

/// Tells how the host is whenever that changes; and, where the unit has a watchdog, that it lives, as long as it does. Never ends.
///
/// To be run as a task: on threads that are all blocked it does not run, and the watchdog hears nothing.
pub(crate) async fn watch(outbox: Outbox<Arc<dyn Store>>) {
    let watchdog = sd_notify::watchdog_enabled().filter(|allowed| !allowed.is_zero());
    let rest = watchdog.map_or(LOOK, |allowed| (allowed / TIMES).min(LOOK));
    let mut told = String::new();
    let mut is_still = false;
    loop {
        let now = state_of(&outbox);
        if now != told {
            status(now.clone()).await;
            told = now;
        }
        if watchdog.is_some() {
            // A database that does not answer in time is not fixed by a restart.
            match tokio::time::timeout(rest, outbox.standstill()).await.unwrap_or(None) {
                None => {
                    is_still = false;
                    send(|| sd_notify::notify(&[NotifyState::Watchdog])).await;
                }
                Some(reason) => {
                    if !std::mem::replace(&mut is_still, true) {
                        tracing::error!(reason, "the host makes no progress; it no longer notifies the watchdog of systemd");
                    }
                }
            }
        }
        tokio::time::sleep(rest).await;
    }
}

/// How the host is, in one line.
fn state_of(outbox: &Outbox<Arc<dyn Store>>) -> String {
    let readiness = outbox.readiness();
    if readiness.is_ready() {
        return "ready".to_owned();
    }
    let reasons: Vec<_> = readiness.reasons().iter().map(|reason| reason.message.as_str()).collect();
    format!("not ready: {}", reasons.join("; "))
}

/// A line break would begin another message to systemd, and a plugin's name may stand in the text.
async fn status(text: String) {
    send(move || sd_notify::notify(&[NotifyState::Status(&shown(&text))])).await;
}

/// On a thread of its own: a service manager that reads nothing must not stop a worker.
async fn send(notify: impl FnOnce() -> io::Result<()> + Send + 'static) {
    if let Ok(Err(error)) = tokio::task::spawn_blocking(notify).await {
        tracing::warn!(%error, "systemd cannot be notified; NOTIFY_SOCKET names its socket");
    }
}
