//! Letting events go that wait behind others, for every database.

use std::collections::HashSet;

use super::{Store, StoreError, Unblocked, WaitsFor};

/// The statements of a dialect.
pub(super) trait Waiting: Store {
    /// The first that waits behind each of these, if any.
    fn firsts(&self, blockers: &[u64]) -> impl Future<Output = Result<Vec<(u64, Option<u64>)>, StoreError>> + Send;

    /// Lets the first `limit` go from behind each of these.
    fn let_go(&self, blockers: &[u64], limit: u32) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What [`KeyStore::unblock`] does. No transaction is needed: whose turn it is keeps it, or is found again at the next call.
pub(super) async fn unblock<S: Waiting>(
    store: &S,
    blockers: &[u64],
    waits_for: WaitsFor,
    limit: u32,
) -> Result<Unblocked, StoreError> {
    let mut firsts = Firsts::new(some(store, blockers).await?);
    if !firsts.waiting.is_empty() {
        let waiting: Vec<u64> = firsts.waiting.iter().map(|(_, first)| *first).collect();
        firsts.leave_out(&store.heads(&waiting, waits_for).await?);
    }
    let turn: Vec<u64> = firsts.waiting.iter().map(|(blocker, _)| *blocker).collect();
    if !turn.is_empty() && limit > 0 {
        store.let_go(&turn, limit).await?;
    }
    Ok(firsts.after(some(store, &turn).await?))
}

async fn some<S: Waiting>(store: &S, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
    if blockers.is_empty() { Ok(Vec::new()) } else { store.firsts(blockers).await }
}

/// Events that others wait behind, each with the first that does.
#[derive(Debug)]
struct Firsts {
    waiting: Vec<(u64, u64)>,
    /// Those behind whom nobody waits any more.
    cleared: Vec<u64>,
}

impl Firsts {
    fn new(firsts: Vec<(u64, Option<u64>)>) -> Self {
        let mut this = Self { waiting: Vec::new(), cleared: Vec::new() };
        for (blocker, first) in firsts {
            match first {
                Some(first) => this.waiting.push((blocker, first)),
                None => this.cleared.push(blocker),
            }
        }
        this
    }

    /// Leaves out those who wait for somebody still: events with the heads of their queues.
    fn leave_out(&mut self, heads: &[(u64, u64)]) {
        let wait: HashSet<u64> = heads.iter().map(|(event, _)| *event).collect();
        self.waiting.retain(|(_, first)| !wait.contains(first));
    }

    /// What came of it: `firsts` are those behind them by now.
    fn after(self, firsts: Vec<(u64, Option<u64>)>) -> Unblocked {
        let now = Self::new(firsts);
        let mut cleared = self.cleared;
        cleared.extend(now.cleared);
        cleared.sort_unstable();
        Unblocked { cleared, left: now.waiting.into_iter().map(|(blocker, _)| blocker).collect() }
    }
}
