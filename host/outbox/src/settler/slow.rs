//! Reports the outcomes of a batch that is not stored for long, before it is known which of them is slow.

use std::pin::pin;

use tokio::time::Instant;

use super::completion::Batch;
use super::obstacle::LONG_WAIT;
use super::parts::Parts;
use crate::metrics::Metrics;
use crate::store::{StuckEvent, StuckEvents, StuckReason};
use crate::time::system_clock;

/// The error of such an outcome.
const SLOW: &str = "the database has neither stored nor refused the outcome, or one that is stored together with it";

/// The report of one batch. Dropping it withdraws the report.
pub(super) struct SlowBatch<'s> {
    metrics: &'s Metrics,
    began_at: Instant,
    /// The number of the report; `None` if the batch does not wait for long.
    number: Option<u64>,
}

impl<'s> SlowBatch<'s> {
    /// The batch is first tried now.
    pub(super) fn begin(metrics: &'s Metrics) -> Self {
        Self { metrics, began_at: Instant::now(), number: None }
    }

    /// Waits for the answer to a statement for this batch. Reports the batch, and the parts that wait behind it, if it takes too long.
    pub(super) async fn answer<T>(&mut self, batch: &Batch, rest: &Parts, asked: impl Future<Output = T>) -> T {
        let mut asked = pin!(asked);
        if let Ok(answer) = tokio::time::timeout_at(self.began_at + LONG_WAIT, asked.as_mut()).await {
            return answer;
        }
        self.report(batch, rest);
        asked.await
    }

    /// Names the first events. They have waited equally long.
    fn report(&mut self, batch: &Batch, rest: &Parts) {
        let since = system_clock().now().minus(self.began_at.elapsed());
        let mut events: Vec<_> = batch.settled.iter().chain(rest.settled()).map(|one| (one.fence.sequence, one.id)).collect();
        events.sort_unstable_by_key(|(sequence, _)| *sequence);
        let named = events.iter().take(StuckEvents::NAMED).map(|(sequence, id)| StuckEvent::new(*sequence, *id, SLOW, since));
        let stuck = StuckEvents::new(StuckReason::OutcomeSlow, events.len(), named);
        self.number = Some(self.metrics.outcomes_apart.set_slow(self.number, stuck));
    }
}

impl Drop for SlowBatch<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.metrics.outcomes_apart.remove_slow(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Fence;
    use crate::settler::completion::Completion;
    use crate::store::Settlement;

    fn outcomes(count: u64) -> Batch {
        let mut batch = Batch::with_capacity(0);
        batch.extend((1..=count).map(|sequence| Completion::claim(Fence::new(sequence, 2, 3), Settlement::Done)));
        batch
    }

    /// A batch that has waited for long.
    fn old(metrics: &Metrics) -> SlowBatch<'_> {
        let began_at = Instant::now().checked_sub(LONG_WAIT * 2).expect("this machine runs for longer");
        SlowBatch { metrics, began_at, number: None }
    }

    #[tokio::test]
    async fn batch_is_reported_while_its_statement_takes_long() {
        let (metrics, mut batch) = (Metrics::default(), outcomes(30));
        let rest = Parts::beyond(8, &mut batch);
        let during = async || {
            tokio::task::yield_now().await;
            metrics.outcomes_apart.stuck()
        };

        assert!(SlowBatch::begin(&metrics).answer(&batch, &rest, during()).await.is_empty(), "it has not waited for long");
        let mut slow = old(&metrics);
        let stuck = slow.answer(&batch, &rest, during()).await;

        let [events] = &stuck[..] else { panic!("{stuck:?}") };
        assert_eq!((events.reason, events.count, events.first.len()), (StuckReason::OutcomeSlow, 30, StuckEvents::NAMED));
        drop(slow);
        assert_eq!(metrics.outcomes_apart.slow(), 0, "it is stored");
    }

    #[tokio::test]
    async fn a_smaller_part_replaces_the_report_of_its_batch() {
        let (metrics, mut batch, none) = (Metrics::default(), outcomes(30), Parts::default());
        let (mut slow, mut other) = (old(&metrics), old(&metrics));

        slow.answer(&batch, &none, tokio::task::yield_now()).await;
        other.answer(&batch, &none, tokio::task::yield_now()).await;
        assert_eq!(metrics.outcomes_apart.slow(), 60);
        drop(batch.split_off(5));
        slow.answer(&batch, &none, tokio::task::yield_now()).await;

        assert_eq!(metrics.outcomes_apart.slow(), 35);
    }
}
