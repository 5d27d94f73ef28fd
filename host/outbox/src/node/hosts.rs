//! The hosts on the table, as operators see them.

use crate::event::OwnerId;
use crate::store::{NodeRecord, Store, StoreError};

/// Every host, as [`NodeStore::nodes`](crate::store::NodeStore::nodes) returns them, but a host whose session has ended is not
/// alive: so a killed host is not shown as alive until its lease ends. The lock of a session can be free for a moment while its host
/// reconnects. A host whose process holds the lock of its session is alive although its lease has ended; its report is unknown.
///
/// # Errors
/// The database's own. A repeat is safe.
pub async fn hosts(store: &dyn Store) -> Result<Vec<NodeRecord>, StoreError> {
    let mut nodes = store.nodes().await?;
    if nodes.iter().any(|node| node.alive && node.session) {
        let ended = store.free_sessions(&OwnerId::generate("hosts")).await?;
        for node in &mut nodes {
            node.alive &= !ended.contains(&node.owner);
        }
    }
    if nodes.iter().any(|node| !node.alive && node.session) {
        let held = store.held_without_lease().await?;
        for node in &mut nodes {
            node.alive |= held.contains(&node.owner);
        }
    }
    Ok(nodes)
}
