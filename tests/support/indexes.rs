//! The indexes of a database for tests.

use outbox::Store;
use outbox::store::Index;

/// Adds what the modes with an order need, so that a test may start a host in any mode.
pub(crate) async fn add_indexes_of_modes(store: &impl Store) {
    for index in [Index::Ordered, Index::OrderedByAggregate] {
        store.add_index(index).await.expect("an empty table can be indexed");
    }
}
