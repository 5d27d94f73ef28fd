//! Events that the database does not let this host claim: they rest, and are reported.

use std::sync::Arc;

use tokio::time::Instant;

use super::Intake;
use crate::metrics::{Metrics, Unchecked};
use crate::store::{Store, StoreError};

impl Intake {
    /// Delays the next claim of a row that the database refuses to let this host claim, and reports its event.
    pub(super) fn refuse(&self, sequence: u64, partition: Option<(u16, u32)>, error: &StoreError) {
        self.metrics.db_error(error);
        self.refused.refuse(sequence, Instant::now());
        // If too many events rest, this one does not.
        if let Some(retry_at) = self.refused.retry_at(&sequence) {
            self.metrics.stuck_claims.refused(sequence, partition, crate::chain(error), retry_at);
        }
    }

    /// Reads the rows of refused events to name them, in a task of its own: the reads may wait for a connection, and must not be cancelled.
    /// Does nothing while an earlier task reads.
    pub(crate) fn check_refused(&self) {
        let Some(turn) = self.metrics.stuck_claims.turn_to_check() else { return };
        let unchecked = self.metrics.stuck_claims.to_check(Instant::now());
        if unchecked.is_empty() {
            return;
        }
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        tokio::spawn(async move {
            for one in unchecked {
                check(&*store, &metrics, one).await;
            }
            drop(turn);
        });
    }
}

/// Names an event in reports and in the log. Forgets an event that is not due any more.
async fn check(store: &dyn Store, metrics: &Arc<Metrics>, Unchecked { seq, error, is_new }: Unchecked) {
    let record = match store.row_at(seq).await {
        Ok(Some(record)) if record.due_at.is_some() => Some(record),
        // The row was deleted, or the event was finished or parked in the meantime.
        Ok(_) => {
            metrics.stuck_claims.forget(std::iter::once(seq));
            return;
        }
        // Named at the next refusal, or after a while.
        Err(_) => None,
    };
    if let Some(record) = &record {
        metrics.stuck_claims.name(seq, record.event_id);
    }
    if is_new {
        tracing::error!(
            event.id = record.as_ref().map(|record| record.event_id.to_string()),
            event.sequence = seq,
            route = record.map(|record| format!("{}/{}", record.aggregate_type, record.event_type)),
            error = error.as_str(),
            "the database refuses to let this host claim an event; retrying after 1 s, later after up to 60 s; other events are claimed"
        );
    }
}
