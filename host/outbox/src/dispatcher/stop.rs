//! The stop of a dispatcher: running calls are finished, queued events are given back, and each step has a time limit.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio::time::timeout_at;

use super::Dispatcher;
use crate::settlement::given_back;

/// How long a stop has after its drain timeout to write the last outcomes.
const LAST_OUTCOMES: Duration = Duration::from_secs(5);
/// How long a stop waits at its very end for a statement that is still running.
const LAST_STATEMENT: Duration = Duration::from_secs(2);
const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// The times of one stop. They count from its beginning; no slow database or listener moves them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopTimes {
    /// When listeners are cut off.
    drained: Instant,
    /// When the settler gives up outcomes that the database refuses, and the stop no longer waits for the poller's claim.
    pub(crate) give_up_at: Instant,
    /// When the stop no longer waits for any running statement.
    pub(crate) over_at: Instant,
    /// When the stop no longer waits for the row of this host to be removed, its last step.
    pub(crate) signed_off: Instant,
}

impl StopTimes {
    /// The times of a stop that begins now and drains for at most `drain_timeout`.
    pub(crate) fn begin(drain_timeout: Duration) -> Self {
        let drained = Instant::now() + drain_timeout.min(A_DAY);
        let give_up_at = drained + LAST_OUTCOMES;
        let over_at = give_up_at + LAST_STATEMENT;
        Self { drained, give_up_at, over_at, signed_off: over_at + LAST_STATEMENT }
    }
}

impl Dispatcher {
    /// The times of a stop that begins now.
    pub(crate) fn stop_times(&self) -> StopTimes {
        StopTimes::begin(self.shared.config.drain_timeout)
    }

    /// Lets the workers finish the queued events within `drain_timeout`; events left then are given back without counting an
    /// attempt. Outcomes of calls that have ended are written first.
    ///
    /// `poller` is ready when the poller has ended, or when the stop no longer waits for it. The drain runs beside it, since the
    /// poller may be in a slow statement. Events that this statement claims find the queue closed; the settler runs on to give them
    /// back.
    pub(crate) async fn stop(mut self, poller: impl Future<Output = ()>, times: StopTimes) {
        self.signals.give_up_at.send_replace(Some(times.give_up_at));
        self.shared.queue.close();
        let drained = timeout_at(times.drained, all_ended(&mut self.workers)).await.is_ok();
        if !drained {
            let (hot, cold) = self.shared.queue.depth();
            tracing::warn!(
                queued = hot + cold,
                in_flight = self.in_flight.len(),
                "the drain timeout is over; events that are not finished are given back"
            );
            self.signals.cut_off.send_replace(true);
        }
        self.give_back_queued(times).await;
        if !drained && timeout_at(times.give_up_at, all_ended(&mut self.workers)).await.is_err() {
            tracing::error!(
                workers = self.workers.len(),
                "listeners block their threads and cannot be cut off; their events are delivered again when their leases end"
            );
        }
        poller.await;
        // Since the first time, a worker may have queued an event for its listener, and the poller may have claimed events that
        // wait for others of their key.
        self.give_back_queued(times).await;
        let Self { settling, claim_keeper, signals, .. } = self;
        signals.stopped.send_replace(true);
        match timeout_at(times.over_at, async { settling.await.and(claim_keeper.await) }).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "the settler did not end well; what it held is delivered again after its lease");
            }
            Err(_) => tracing::error!(
                "the database does not answer; events whose outcomes it does not write any more are delivered again when their leases end"
            ),
        }
    }

    /// Gives back events that are queued or wait for others of their key. Those that the settler no longer takes are claimed again
    /// after their leases.
    async fn give_back_queued(&self, times: StopTimes) {
        let mut left = self.shared.queue.drain();
        // The queue is closed: an event that ends now starts no other.
        left.extend(self.shared.order.iter().flat_map(|order| order.key_queues().drain()));
        // Hash maps have any order; sorted, a seed of the walk runs the same way again.
        left.sort_by_key(|delivery| delivery.fence().map(|fence| fence.sequence));
        let giving_back = async {
            for delivery in left {
                self.settler.send(delivery, given_back()).await;
            }
        };
        if timeout_at(times.over_at, giving_back).await.is_err() {
            tracing::error!("the database does not answer; events that are not given back are delivered when their leases end");
        }
    }
}

async fn all_ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}
