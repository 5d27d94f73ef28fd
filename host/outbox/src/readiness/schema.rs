//! Whether the schema is still the one that this program needs: another program may migrate it down or up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::recurring::{Outage, Recurring};
use crate::store::{Index, Store, StoreError};

/// The rest between two checks.
const INTERVAL: Duration = Duration::from_secs(30);

/// What was last found wrong with the schema; nothing at first, since no host starts with a wrong schema.
#[derive(Debug, Default)]
pub(crate) struct SchemaFault(Mutex<Option<String>>);

impl SchemaFault {
    /// What is wrong with the schema; `None` when nothing is.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the result of a check. A check that the database did not answer says nothing about the schema.
    fn note(&self, found: Result<(), StoreError>) {
        let fault = match found {
            Ok(()) => None,
            Err(error) if error.is_of_schema() => Some(crate::chain(&error)),
            Err(_) => return,
        };
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), fault.clone());
        match fault {
            Some(error) if before.as_ref() != Some(&error) => {
                tracing::error!(error, "the schema is not the one that this host needs")
            }
            None if before.is_some() => tracing::info!("the schema is again the one that this host needs"),
            _ => {}
        }
    }
}

/// Checks the schema every [`INTERVAL`].
pub(crate) struct SchemaWatch {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fault: Arc<SchemaFault>,
    /// The index that this host's mode needs.
    pub(crate) index: Option<Index>,
    /// While the database no longer tells its version. The tables are as they were when this host started.
    pub(crate) unknown: Outage,
}

impl SchemaWatch {
    async fn check(&self) -> Result<(), StoreError> {
        self.store.check_schema().await?;
        match self.index {
            Some(index) => self.store.check_index(index).await,
            None => Ok(()),
        }
    }
}

impl Recurring for SchemaWatch {
    /// No host starts with a wrong schema.
    fn first_rest(&self) -> Duration {
        INTERVAL
    }

    async fn run_once(&mut self) -> Duration {
        let checked = self.check().await;
        match &checked {
            Err(error @ StoreError::NoVersion { .. }) if self.unknown.begins() => {
                tracing::warn!(%error, "this host keeps delivering, but no host can start on these tables")
            }
            Ok(()) if self.unknown.ends() => tracing::info!("the version of the schema is known again"),
            _ => {}
        }
        self.fault.note(checked);
        INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stays_until_the_schema_is_found_well_and_a_lost_connection_says_nothing_of_it() {
        let fault = SchemaFault::default();
        let older = || Err(StoreError::SchemaOlder { table: "outbox_event".to_owned(), found: 1, wanted: 2 });
        let lost = || Err(StoreError::Disconnected { action: "check the schema", source: sqlx::Error::PoolTimedOut });
        fault.note(lost());
        assert_eq!(fault.get(), None);

        fault.note(older());
        fault.note(lost());

        assert!(
            fault.get().is_some_and(|fault| fault.contains("is at version 1, but this program needs 2")),
            "{:?}",
            fault.get()
        );
        fault.note(Ok(()));
        assert_eq!(fault.get(), None);
    }
}
