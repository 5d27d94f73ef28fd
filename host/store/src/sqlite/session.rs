//! The sessions of hosts: a locked file beside the database for each of them. The database itself is not locked.

use async_trait::async_trait;
use outbox_event::OwnerId;

use super::error::failed;
use super::node::DAY;
use super::session_file::{HeldFile, SessionFile};
use super::{Run, SqliteStore, TransactionalStore};
use crate::row::Named;
use crate::session::{ABANDON, HOLD, LOOK, taken};
use crate::{Session, SessionStore, StoreError};

/// Whose lock may be free. ?1 the owner who asks, ?2 now.
const WITH_SESSION: &str = "
SELECT owner FROM outbox_event_node
WHERE session = 1 AND owner <> ?1 AND alive_until > ?2 ORDER BY owner";

/// Owners without a lease whose locks may be held. ?1 now, ?2 the oldest end of a lease.
const WITHOUT_LEASE: &str = "
SELECT owner FROM outbox_event_node
WHERE session = 1 AND alive_until <= ?1 AND alive_until >= ?2 ORDER BY owner";

/// ?1 the owner that is gone.
const HAS_SESSION: &str = "SELECT owner FROM outbox_event_node WHERE owner = ?1 AND session = 1";

/// ?1 the owner that is gone, ?2 now.
const END_LEASE: &str = "
UPDATE outbox_event_node SET alive_until = ?2
WHERE owner = ?1 AND alive_until > ?2";

#[async_trait]
impl SessionStore for SqliteStore {
    async fn hold_session(&self, owner: &OwnerId) -> Result<Option<Box<dyn Session>>, StoreError> {
        let Some(file) = self.session_file(owner.as_str()) else { return Ok(None) };
        match file.hold() {
            Ok(held) => Ok(Some(Box::new(held))),
            Err(error) => match error.kind() {
                std::io::ErrorKind::Unsupported => Ok(None),
                std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::WouldBlock => Err(taken()),
                _ => Err(failed(HOLD, error.into())),
            },
        }
    }

    async fn free_sessions(&self, owner: &OwnerId) -> Result<Vec<String>, StoreError> {
        let statement = self.statement(WITH_SESSION).bind(owner.as_str()).bind(self.now_micros());
        let mut owners = self.read_all(LOOK, statement, |row| row.string("owner")).await?;
        owners.retain(|owner| self.session_file(owner).is_some_and(|file| file.is_free()));
        Ok(owners)
    }

    async fn held_without_lease(&self) -> Result<Vec<String>, StoreError> {
        let now = self.now_micros();
        let statement = self.statement(WITHOUT_LEASE).bind(now).bind(now.saturating_sub(DAY));
        let mut owners = self.read_all("look for hosts without a lease", statement, |row| row.string("owner")).await?;
        owners.retain(|owner| self.session_file(owner).is_some_and(|file| file.is_held()));
        Ok(owners)
    }

    async fn abandon(&self, gone: &str) -> Result<bool, StoreError> {
        let failed = |error| failed(ABANDON, error);
        let Some(file) = self.session_file(gone) else { return Ok(false) };
        let mut transaction = self.begin().await?;
        let found = self.statement(HAS_SESSION).bind(gone).fetch_optional(&mut *transaction).await.map_err(failed)?;
        if found.is_none() || !file.is_free() {
            return Ok(false);
        }
        let now = self.now_micros();
        let query = self.statement(END_LEASE).bind(gone).bind(now);
        let ended = query.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
        // While we may write, nobody else is here.
        file.remove_if_free();
        self.finish(transaction).await?;
        Ok(ended > 0)
    }
}

impl SqliteStore {
    /// The file that a session of the owner holds; `None` where there can be none.
    fn session_file(&self, owner: &str) -> Option<SessionFile> {
        SessionFile::of(self.opened_file.path()?, owner)
    }
}

#[async_trait]
impl Session for HeldFile {
    async fn prove(&mut self) -> Result<(), StoreError> {
        if self.is_there() {
            return Ok(());
        }
        Err(StoreError::SessionLost { why: format!("its file {} was removed or replaced", self.path().display()) })
    }

    async fn end(self: Box<Self>) {}
}
