//! The latest part of the audit log, in which changes are looked for that explain a problem.

use std::time::Duration;

use crate::store::{AuditFilter, AuditRecord, Store, StoreError};
use crate::time::Timestamp;

/// The shortest time that the records cover: the span of the charts. A replay of many events must not hide a swap before it.
const SPAN: Duration = Duration::from_secs(3_600);
/// How many audit records are read at once. The first page reaches far back unless many events were changed by hand.
const PAGE: u32 = 500;
/// How many pages are read at the most: the batches of a replay of two and a half million events.
const PAGES: usize = 10;

/// The latest audit records: one page of them or all of the last hour, whichever is more, but at most 5,000.
#[derive(Debug, Default)]
pub struct RecentRecords {
    /// The records, the latest first.
    pub records: Vec<AuditRecord>,
    /// Whether there may be earlier records.
    pub has_earlier: bool,
}

impl RecentRecords {
    /// Reads the records. `now` is the time of the database.
    ///
    /// # Errors
    /// If the audit log cannot be read.
    pub async fn read(store: &dyn Store, now: Timestamp) -> Result<Self, StoreError> {
        let since = now.minus(SPAN);
        let (mut recent, mut filter) = (Self::default(), AuditFilter::default());
        for _ in 0..PAGES {
            let page = store.list_audit(&filter, PAGE).await?;
            recent.has_earlier = page.len() == PAGE as usize;
            recent.records.extend(page);
            let Some(last) = recent.records.last() else { break };
            if !recent.has_earlier || last.at < since {
                break;
            }
            filter.before = Some(last.id);
        }
        Ok(recent)
    }
}
