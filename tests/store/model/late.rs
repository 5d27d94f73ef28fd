//! Transactions of a caller that end late.

use outbox::{EventId, TransactionalStore};

use super::parts::{End, Hours, NewEvent};
use super::table::Uncommitted;

/// Something that a transaction does.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Insert { events: Vec<(EventId, NewEvent)>, owner: usize, lease: Hours },
    DeleteInserted { event: usize },
}

/// A transaction that may be open.
pub(super) struct Late<S: TransactionalStore> {
    /// On the database, and what it inserted.
    pub(super) open: Option<(S::Transaction, Uncommitted)>,
    /// What it will do at its end, where a database has one writer at a time: everybody else would wait for it.
    pub(super) later: Vec<Work>,
    /// The ids that it inserts. A writer of the same id elsewhere would wait for it.
    pub(super) ids: Vec<EventId>,
    /// Whether it took any of them back. It repeats none then, for the reason of `Player::repeatable`.
    pub(super) took_back: bool,
}

impl<S: TransactionalStore> Late<S> {
    pub(super) fn new() -> Self {
        Self { open: None, later: Vec::new(), ids: Vec::new(), took_back: false }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Forgets all that it was to do.
    pub(super) async fn give_up(&mut self) {
        if let Some((transaction, _)) = self.open.take() {
            // Best effort: the trace is over, and a connection that was lost has rolled back by itself.
            let _ = S::rollback(transaction).await;
        }
        self.later.clear();
        self.ids.clear();
        self.took_back = false;
    }
}

/// Ends a transaction. True when its rows are there now.
pub(super) async fn end<S: TransactionalStore>(transaction: S::Transaction, end: End) -> Result<bool, outbox::StoreError> {
    match end {
        End::Commit => S::commit(transaction).await?,
        End::RollBack => S::rollback(transaction).await?,
        End::Drop => drop(transaction),
    }
    Ok(end == End::Commit)
}
