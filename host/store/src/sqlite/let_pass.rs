//! Time that passes for the events of a test.

use std::time::Duration;

use outbox_event::time::micros;

use super::{Run, SqliteStore};
use crate::StoreError;

/// Leases are left as they are: whoever holds an event measures its lease by himself. ?1 the span.
const LET_PASS: &str = "
UPDATE outbox_event
SET occurred_at = occurred_at - ?1, created_at = created_at - ?1, available_at = available_at - ?1, due_at = due_at - ?1,
    expires_at = expires_at - ?1, done_at = done_at - ?1, wait_since = wait_since - ?1";

impl SqliteStore {
    /// Makes every event older by so much.
    ///
    /// # Errors
    /// The database's own.
    #[doc(hidden)] // for the tests of services
    pub async fn let_pass(&self, span: Duration) -> Result<(), StoreError> {
        self.execute("let time pass", self.statement(LET_PASS).bind(micros(span))).await?;
        Ok(())
    }
}
