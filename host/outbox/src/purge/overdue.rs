//! Finished events that purges should have deleted.

use super::PurgeConfig;
use crate::event::Status;
use crate::store::{PurgeRow, Store, StoreError};
use crate::time::Timestamp;

/// Finished events of one status that at least two purges should have deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Their status: done or dead.
    pub status: Status,
    /// When all of them had finished.
    pub finished_before: Timestamp,
    /// The event that finished first.
    pub oldest: PurgeRow,
}

impl Overdue {
    /// Looks for them, one entry for each status that has some. Reads one row of the index of finished events for each status. Empty if
    /// the host does not purge. `now` is the database's time.
    ///
    /// # Errors
    /// The database's own.
    pub async fn read(store: &dyn Store, purge: &PurgeConfig, now: Timestamp) -> Result<Vec<Self>, StoreError> {
        let mut all = Vec::new();
        for status in [Status::Done, Status::Dead] {
            let Some(finished_before) = purge.overdue_before(status, now) else { continue };
            let oldest = store.oldest_purgeable(status, finished_before).await?;
            all.extend(oldest.map(|oldest| Self { status, finished_before, oldest }));
        }
        Ok(all)
    }

    /// The setting that says how long events of this status are kept.
    #[must_use]
    pub const fn setting(&self) -> &'static str {
        match self.status {
            Status::Dead => "purge.dead_retention",
            Status::Done | Status::New | Status::Retry => "purge.retention",
        }
    }

    /// The command that deletes them, and names each event that the database does not delete.
    #[must_use]
    pub const fn command(&self) -> &'static str {
        match self.status {
            Status::Dead => "outbox purge --dead",
            Status::Done | Status::New | Status::Retry => "outbox purge",
        }
    }
}
