//! How a database runs the statements that must stay fast.

use async_trait::async_trait;
use serde::Serialize;

use super::StoreError;

/// Asking the database how it would run its statements.
#[async_trait]
pub trait PlanStore: Send + Sync {
    /// How the database would run each statement of the hot walk, of the purge and of the dead, on the rows as they are.
    async fn plans(&self) -> Result<Vec<Plan>, StoreError>;
}

/// How the database would run one statement.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// Which statement: `read`, `read in order`, `read the front`, `claim`, `place in queue`, `place in a long queue`,
    /// `heads of queues`, `settle`, `renew`, `purge`, `dead`, `unpark`, `next due`, `unblock`, and others of one database.
    pub statement: &'static str,
    /// The index that it lives on.
    pub index: String,
    /// Whether the plan uses that index, and reads no table whole.
    pub good: bool,
    /// What the database said.
    pub text: String,
}
