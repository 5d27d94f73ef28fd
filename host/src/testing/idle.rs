//! Waiting until an outbox has nothing to do.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::Status;
use crate::outbox::Outbox;
use crate::store::{SharedStore, Store, StoreError};

/// How long a test waits for an outbox to become idle: long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);
/// The rest between two looks.
const REST: Duration = Duration::from_millis(1);

/// Waits until nothing is due, queued or with a listener, of this host and of every other one on the same table. Events that wait for
/// something else are left: for their time, for another attempt, for a listener, behind an event that failed. So are events that are
/// excluded from the store, which wait for another attempt in memory.
///
/// What a listener writes before it answers is waited for, by whichever way. An open transaction is not waited for, nor what a listener
/// writes after its answer, in a task that it has spawned: ask for that with [`written`](super::written) until it is there.
///
/// # Panics
/// When that takes longer than 30 s, as with a listener that puts its event off by nothing again and again, or in the mode
/// [`ordered`](Outbox::ordered), where an event that waits keeps later ones that are due; when the database fails; or when a listener of this outbox asks, which would wait for itself.
pub async fn until_idle<S: SharedStore>(outbox: &Outbox<S>) {
    assert!(!outbox.is_called_by_listener(), "a listener cannot wait until its own outbox is idle: it would wait for itself");
    let started = Instant::now();
    while let Some(busy) = busy(outbox).await.expect("the events of a test can be looked at") {
        assert!(started.elapsed() < PATIENCE, "the outbox is not idle after {PATIENCE:?}: {busy}");
        tokio::time::sleep(REST).await;
    }
}

/// What the outbox has to do; `None` when it is idle.
async fn busy<S: SharedStore>(outbox: &Outbox<S>) -> Result<Option<String>, StoreError> {
    // An event that is in no table may write one that is, and go. So nothing may be in hand before the look at the table, and nothing may
    // have been since.
    let before = passed(outbox);
    let in_hand = outbox.hands().busy();
    if in_hand > 0 {
        return Ok(Some(format!("{in_hand} events are in hand")));
    }
    let store = outbox.store();
    // One statement tells of what is due and of what is claimed: between two, another host could claim an event, and neither would see it.
    let stats = store.stats().await?;
    if stats.in_flight > 0 {
        return Ok(Some(format!("{} events are claimed", stats.in_flight)));
    }
    if stats.oldest_pending_seconds.is_some() || store.next_due().await? == Some(Duration::ZERO) {
        outbox.look();
        return Ok(Some("an event is due and not claimed".to_owned()));
    }
    if stats.blocked > 0 && !are_all_blocked(&**store, stats.blocked).await? {
        outbox.look();
        return Ok(Some("an event waited behind another, and may go now".to_owned()));
    }
    Ok((outbox.hands().busy() > 0 || passed(outbox) != before).then(|| "an event came in meanwhile".to_owned()))
}

/// How many events have come into this host's hands so far, how many have come back from a rest, and how many were written.
fn passed<S: SharedStore>(outbox: &Outbox<S>) -> [u64; 4] {
    let counts = outbox.metrics().counts();
    [counts.hot_enqueued, counts.cold_enqueued, outbox.hands().rests_ended(), counts.events_written]
}

/// Whether all of these events that waited a moment ago wait still, each behind one that is not out of the way. The poller lets the others
/// go at its next turn.
async fn are_all_blocked(store: &dyn Store, waited: u64) -> Result<bool, StoreError> {
    let mut waiting = 0;
    for key in store.blocked_keys(u32::MAX).await? {
        let is_free = match (key.event_id, key.status) {
            (Some(id), Some(Status::Dead)) => store.get(id).await?.is_none_or(|blocker| !blocker.blocks),
            (_, status) => matches!(status, None | Some(Status::Done)),
        };
        if is_free {
            return Ok(false);
        }
        waiting += key.waiting;
    }
    Ok(waiting == waited)
}
