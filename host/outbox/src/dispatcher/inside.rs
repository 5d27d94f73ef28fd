//! Whether code runs inside a visit to a listener, where it must not wait for the end of all visits.

use std::sync::Arc;

use crate::queue::Queue;

tokio::task_local! {
    /// The outbox that makes the visit, by the address of its queue.
    static VISITED_BY: usize;
}

/// Makes a visit that knows which outbox it belongs to.
pub(super) fn within<F: Future>(queue: &Arc<Queue>, visit: F) -> impl Future<Output = F::Output> {
    VISITED_BY.scope(address(queue), visit)
}

/// Whether the caller is a listener or an interceptor that the outbox with this queue waits for. False in tasks that these spawned.
pub(crate) fn is_inside(queue: &Arc<Queue>) -> bool {
    VISITED_BY.try_with(|visited_by| *visited_by == address(queue)).unwrap_or(false)
}

fn address(queue: &Arc<Queue>) -> usize {
    Arc::as_ptr(queue).addr()
}
