//! Waiting until an outbox has nothing to do.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::Status;
use crate::outbox::Outbox;
use crate::store::{SharedStore, Store, StoreError};

/// How long a test waits for an outbox to become idle: long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);
/// The rest between two checks.
const REST: Duration = Duration::from_millis(1);

/// Waits until no event is due, queued or with a listener, in this host and in every other host on the same table. Events that
/// wait for something else are not waited for: for their time, for another attempt, for a listener, behind an event that
/// failed. Neither are events that are excluded from the store and wait for another attempt in memory.
///
/// Events that a listener writes before it answers are waited for. Open transactions are not, nor events that a listener's task
/// writes after the answer: ask for those with [`written`](super::written) until they are there.
///
/// # Panics
/// When that takes longer than 30 s, for example because a listener defers its event by zero again and again, or in the mode
/// [`ordered`](Outbox::ordered), where a waiting event holds up later ones that are due; when the database fails; or when it is
/// called by a listener of this outbox, which would wait for itself.
pub async fn until_idle<S: SharedStore>(outbox: &Outbox<S>) {
    assert!(!outbox.is_called_by_listener(), "a listener cannot wait until its own outbox is idle: it would wait for itself");
    let started = Instant::now();
    while let Some(busy) = busy(outbox).await.expect("the events of a test can be looked at") {
        assert!(started.elapsed() < PATIENCE, "the outbox is not idle after {PATIENCE:?}: {busy}");
        tokio::time::sleep(REST).await;
    }
}

/// Why the outbox is busy; `None` when it is idle.
async fn busy<S: SharedStore>(outbox: &Outbox<S>) -> Result<Option<String>, StoreError> {
    // An event that is in no table may write one that is: nothing may be in hand before the table is read, nor come in
    // meanwhile.
    let before = passed(outbox);
    let in_hand = outbox.hands().not_resting();
    if in_hand > 0 {
        return Ok(Some(format!("{in_hand} events are in hand")));
    }
    let store = outbox.store();
    // One statement counts due and claimed events: between two of them another host could claim an event, which neither counts.
    let stats = store.stats().await?;
    if stats.in_flight > 0 {
        return Ok(Some(format!("{} events are claimed", stats.in_flight)));
    }
    // An event that a host gave back has an age before it is due again, so only this cause shows that an event is due.
    if stats.oldest_pending_seconds.waits_for_host.is_some() || store.next_due().await? == Some(Duration::ZERO) {
        outbox.look();
        return Ok(Some("an event is due and not claimed".to_owned()));
    }
    if stats.blocked > 0 && !are_all_blocked(&**store, stats.blocked).await? {
        outbox.look();
        return Ok(Some("an event waited behind another, and may go now".to_owned()));
    }
    Ok((outbox.hands().not_resting() > 0 || passed(outbox) != before).then(|| "an event came in meanwhile".to_owned()))
}

/// How many events this host has queued, hot and cold, how many have come back from a rest, and how many were written.
fn passed<S: SharedStore>(outbox: &Outbox<S>) -> [u64; 4] {
    let counts = outbox.metrics().counts();
    [counts.hot_enqueued, counts.cold_enqueued, outbox.hands().rests_ended(), counts.events_written]
}

/// Whether all `waited` blocked events still wait behind an event that blocks them. The poller soon releases the others.
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
