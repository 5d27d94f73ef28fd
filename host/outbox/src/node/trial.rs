//! A trial by a host that stands aside: whether it can read the table and store outcomes.

use std::time::Duration;

use crate::event::{Fence, OwnerId};
use crate::store::{ReadRequest, Settled, Settlement, Store, StoreError};

/// Executes the statements that read events and store outcomes, for a host that holds no partition and for an event that does not exist.
/// Databases check the rights to tables and columns for such a statement, too, and statement triggers run.
pub(super) async fn read_and_store(store: &dyn Store, erase_done: bool) -> Result<(), StoreError> {
    let request = ReadRequest {
        owner: OwnerId::generate("trial"),
        partitions: vec![0],
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 1,
        max_bytes: 1,
        skip_recent: Duration::ZERO,
        order: None,
    };
    store.read(&request).await?;
    let done = if erase_done { Settlement::Erased } else { Settlement::Done };
    for settlement in [done, Settlement::Retry { after: Duration::ZERO, error: String::new() }] {
        // No partition has this epoch, and no claimed row this `claim_seq`.
        let of_no_event = [Settled::new(Fence::new(0, i32::MAX.unsigned_abs(), 0), settlement)];
        store.unsettled(&of_no_event).await?;
        store.settle(&of_no_event).await?;
    }
    Ok(())
}
