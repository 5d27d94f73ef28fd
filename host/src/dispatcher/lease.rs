//! Renews the claims of everything in flight.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::overdue::Visits;
use crate::event::{EventId, Fence};
use crate::metrics::Metrics;
use crate::queue::InFlight;
use crate::store::{Store, StoreError};

/// Most claims renewed by one statement.
const BATCH: usize = 2_000;

/// Renews at every third of the lease, until it is stopped. One failed renewal does no harm: two more fit into the lease. The claim of
/// an event whose call is overdue is not renewed, so that another host may take the event over.
pub(super) async fn keep(
    store: Arc<dyn Store>,
    in_flight: Arc<InFlight>,
    visits: Arc<Visits>,
    lease: Duration,
    metrics: Arc<Metrics>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut failing = false;
    // A stop ends the wait, never a statement.
    while tokio::time::timeout(lease / 3, stopped.wait_for(|stopped| *stopped)).await.is_err() {
        let mut failed = None;
        let mut held = in_flight.held();
        let overdue = visits.overdue(Instant::now());
        held.retain(|(id, _)| !overdue.contains(id));
        for claims in held.chunks(BATCH) {
            if let Err(error) = renew(&*store, &in_flight, claims, lease).await {
                metrics.db_error(&error);
                failed = Some(error);
            }
        }
        match &failed {
            Some(error) if !failing => {
                tracing::error!(error = %crate::chain(error), "leases could not be renewed; trying again")
            }
            None if failing => tracing::info!("leases are renewed again"),
            _ => {}
        }
        failing = failed.is_some();
    }
}

async fn renew(
    store: &dyn Store,
    in_flight: &InFlight,
    claims: &[(EventId, Fence)],
    lease: Duration,
) -> Result<(), StoreError> {
    let fences: Vec<Fence> = claims.iter().map(|(_, fence)| *fence).collect();
    // Taken before the statement is sent: by the database's clock the lease ends later than we believe, never earlier.
    let end = Instant::now() + lease;
    let renewed = store.renew(&fences, lease).await?;
    let (held, locked): (HashSet<u64>, HashSet<u64>) =
        (renewed.held.into_iter().collect(), renewed.locked.into_iter().collect());
    for (id, fence) in claims.iter().filter(|(_, fence)| !locked.contains(&fence.sequence)) {
        in_flight.renewed(*id, *fence, held.contains(&fence.sequence).then_some(end));
    }
    Ok(())
}
