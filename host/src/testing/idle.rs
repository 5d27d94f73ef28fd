//! Waiting until an outbox has nothing to do.

use std::time::{Duration, Instant};

use crate::outbox::Outbox;
use crate::store::SharedStore;

/// How long a test waits for an outbox to become idle: long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);
/// The rest between two looks.
const REST: Duration = Duration::from_millis(1);

/// Waits until nothing is due, queued or with a listener, of this host and of every other one on the same table. Events that wait for
/// something else are left: for their time, for another attempt, for a listener, behind an event that failed.
///
/// An open transaction is not waited for.
///
/// # Panics
/// When that takes longer than 30 s, as with a listener that puts its event off by nothing again and again; or when the database
/// fails.
pub async fn until_idle<S: SharedStore>(outbox: &Outbox<S>) {
    let started = Instant::now();
    while let Some(busy) = busy(outbox).await {
        assert!(started.elapsed() < PATIENCE, "the outbox is not idle after {PATIENCE:?}: {busy}");
        tokio::time::sleep(REST).await;
    }
}

/// What the outbox has to do; `None` when it is idle.
async fn busy<S: SharedStore>(outbox: &Outbox<S>) -> Option<String> {
    let in_hand = || Some(outbox.in_flight()).filter(|events| *events > 0).map(|events| format!("{events} events in hand"));
    // Before and after the look at the table: an event that is in no table may write one that is.
    if let Some(busy) = in_hand() {
        return Some(busy);
    }
    let store = outbox.store();
    let stats = store.stats().await.expect("the events of a test can be counted");
    let next = store.next_due().await.expect("the next due event of a test can be looked for");
    if stats.in_flight > 0 {
        return Some(format!("{} events are claimed", stats.in_flight));
    }
    if next == Some(Duration::ZERO) {
        outbox.look();
        return Some("an event is due and not claimed".to_owned());
    }
    in_hand()
}
