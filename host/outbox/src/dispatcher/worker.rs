//! A worker takes an event from the queue, makes an attempt to deliver it, and hands the conclusion to the settler.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;

use super::attempt::{Admission, Attempt, admit};
use super::inside;
use super::presence::Presence;
use super::shared::Shared;
use crate::settlement::full;
use crate::settler::SettlerHandle;

/// Takes deliveries until the queue is closed and empty, or an attempt is cut off.
pub(super) async fn work(worker: usize, shared: Arc<Shared>, settler: SettlerHandle, mut cut_off: watch::Receiver<bool>) {
    // Made once: starting this wait again for each event would cost more than some calls.
    let mut cut_off = pin!(cut_off.wait_for(|cut_off| *cut_off));
    let presence = Presence::new();
    while let Some(delivery) = shared.queue.take().await {
        let (delivery, target) = match admit(&shared, delivery) {
            Admission::Attempt(delivery, target) => (delivery, target),
            Admission::Wait => continue,
            Admission::GiveBack(delivery, after) => {
                settler.send(delivery, full(after)).await;
                continue;
            }
        };
        let attempt = Attempt::new(&shared, worker, delivery, target);
        let is_cut_off = {
            let mut walk = pin!(inside::within(&shared.queue, attempt.walk()));
            let walk = poll_fn(|context| {
                let _entered = attempt.span.enter();
                walk.as_mut().poll(context)
            });
            tokio::select! {
                biased;
                () = presence.watch(&shared.queue, &attempt.slot, walk) => false,
                _ = &mut cut_off => true,
            }
        };
        attempt.end(&settler, is_cut_off).await;
        if is_cut_off {
            return;
        }
        // A worker whose listeners never wait would otherwise never let other tasks use its thread.
        tokio::task::coop::consume_budget().await;
    }
}
