//! Finds and claims due events without a host.

use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{Claimed, Filter, Record};
use outbox::{Status, Store, StoreError};

/// At most `limit` free events of any partition, those first that have been due longest. The fences have no epoch. Rows that
/// `Store::list` cannot read are missing.
pub async fn due(store: &dyn Store, limit: usize) -> Result<Vec<Fence>, StoreError> {
    let now = store.now().await?;
    let mut due: Vec<Record> = Vec::new();
    for status in [Status::New, Status::Retry] {
        due.extend(store.list(&Filter { status: Some(status), ..Filter::default() }, 1_000_000).await?);
    }
    due.retain(|row| row.due_at.is_some_and(|due_at| due_at <= now) && row.lease_end.is_none_or(|lease_end| lease_end <= now));
    due.sort_by_key(|row| (row.due_at, row.seq));
    Ok(due.into_iter().take(limit).map(|row| Fence::new(row.seq, 0, row.claim_seq)).collect())
}

/// Claims at most `limit` events of any partition, those first that have been due longest. If fewer are due, it asks for other rows
/// too, which the store must refuse.
pub async fn claim_due(store: &dyn Store, owner: &OwnerId, lease: Duration, limit: usize) -> Result<Vec<Claimed>, StoreError> {
    let mut fences = due(store, limit).await?;
    if fences.len() < limit {
        let others = store.list(&Filter::default(), 1_000).await?;
        let others = others.iter().map(|row| Fence::new(row.seq, 0, row.claim_seq));
        let are_new: Vec<Fence> = others.filter(|other| !fences.contains(other)).take(limit - fences.len()).collect();
        fences.extend(are_new);
    }
    store.claim(owner, lease, &fences).await
}
