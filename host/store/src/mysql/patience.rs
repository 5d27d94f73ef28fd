//! What to do when this database breaks a transaction off.

use std::time::Duration;

use rand::RngExt;

use super::error::{DEADLOCK, number};
use super::{MySqlStore, Run};
use crate::StoreError;
use crate::run::answered;

/// Does something that is whole, again when the server broke it off. An attempt that hears nothing from the server fails.
pub(super) async fn patiently<T, F>(store: &MySqlStore, attempt: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut patience = Patience { left: TRIES, rest: Duration::from_millis(2) };
    loop {
        match answered(store.longest, attempt(), |silence| store.failed("finish a transaction", silence)).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

/// How often a transaction that the server broke off is tried again. A deadlock is nobody's fault and heals at once; a lock
/// that was waited for in vain has cost seconds already.
struct Patience {
    left: u32,
    rest: Duration,
}

const TRIES: u32 = 10;

impl Patience {
    /// Whether to try again; rests first, a little longer each time and never as long as the others.
    async fn allows(&mut self, error: &StoreError) -> bool {
        let StoreError::Locked { source, .. } = error else { return false };
        let cost = if number(source) == Some(DEADLOCK) { 1 } else { TRIES };
        if self.left <= cost {
            return false;
        }
        self.left -= cost;
        let rest = self.rest.mul_f64(rand::rng().random_range(0.5..1.5));
        tokio::time::sleep(rest).await;
        self.rest = (self.rest * 2).min(Duration::from_millis(100));
        true
    }
}
