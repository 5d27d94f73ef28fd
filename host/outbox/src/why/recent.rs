//! The latest part of the audit log, in which changes are looked for that explain a problem.

use std::time::Duration;

use super::changes::{Change, changes};
use crate::store::{AuditFilter, AuditRecord, Store, StoreError};
use crate::time::Timestamp;

/// The shortest time that the records cover: the span of the charts. A replay of many events must not hide a swap before it.
const SPAN: Duration = Duration::from_secs(3_600);
/// How many audit records are read at once. The first page reaches far back unless many events were changed by hand.
const PAGE: u32 = 500;
/// How many pages are read at the most: the batches of a replay of two and a half million events.
const PAGES: usize = 10;

/// The latest changes: those of one page of audit records or of the last hour, whichever is more, but of at most 5,000 records.
#[derive(Debug, Default)]
pub struct RecentChanges {
    /// The changes, the latest first.
    pub changes: Vec<Change>,
    /// The ID of the earliest record that was read, if there may be earlier records: these may belong to the same change.
    pub cut_at: Option<u64>,
}

impl RecentChanges {
    /// Reads the records of the changes. `now` is the time of the database.
    ///
    /// # Errors
    /// If the audit log cannot be read.
    pub async fn read(store: &dyn Store, now: Timestamp) -> Result<Self, StoreError> {
        let since = now.minus(SPAN);
        let (mut records, mut filter) = (Vec::<AuditRecord>::new(), AuditFilter::default());
        for _ in 0..PAGES {
            let page = store.list_audit(&filter, PAGE).await?;
            let has_earlier = page.len() == PAGE as usize;
            records.extend(page);
            filter.before = records.last().filter(|_| has_earlier).map(|last| last.id);
            if filter.before.is_none() || records.last().is_some_and(|last| last.at < since) {
                break;
            }
        }
        Ok(Self { changes: changes(records), cut_at: filter.before })
    }
}
