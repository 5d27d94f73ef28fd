//! The sessions of hosts: the server's named locks.
//!
//! Such locks belong to the whole server, and their names have at most 64 characters, so a name is a hash of the database, the
//! table and the owner. The name is made anew in each statement, so that an owner cannot hold another lock than the one that others
//! look at. A proxy may send a statement that only reads to another server, which knows nothing of the lock. So the lock is taken
//! in a transaction, and looked at in one before any lease is ended: a proxy sends transactions to the server that writes.

use async_trait::async_trait;
use outbox_event::OwnerId;
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Row};

use super::error::failed;
use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run};
use crate::row::Named;
use crate::run::{commit_if_some, within};
use crate::session::{ABANDON, ANSWER, HOLD, LOOK, OPENING, PROVE, opened_as_in, taken};
use crate::{Session, SessionStore, StoreError};

/// Returns a row on a server of a cluster in which several servers write, each with locks of its own: Galera, group replication
/// with many primaries.
const MANY_WRITERS: &str = "
SHOW VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
  OR (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')";

/// Does not wait. Bound: the owner.
const TAKE_LOCK: &str = concat!(
    "SELECT GET_LOCK(CONCAT('outbox/', SHA2(CONCAT(LOWER(CONCAT(DATABASE(), '.outbox_event_node/')), ?), 224)), 0) FROM DUAL WHERE ",
    on_primary!()
);

/// Bound: the owner.
const LET_GO: &str =
    "SELECT RELEASE_LOCK(CONCAT('outbox/', SHA2(CONCAT(LOWER(CONCAT(DATABASE(), '.outbox_event_node/')), ?), 224)))";

/// Bound: the owner.
const IS_HELD: &str = "
SELECT IS_USED_LOCK(CONCAT('outbox/', SHA2(CONCAT(LOWER(CONCAT(DATABASE(), '.outbox_event_node/')), ?), 224))) = CONNECTION_ID()";

/// Bound: the owner who asks.
const FREE: &str = concat!(
    "
SELECT owner FROM outbox_event_node
WHERE session = 1 AND owner <> ? AND alive_until > UTC_TIMESTAMP(6)
  AND IS_FREE_LOCK(CONCAT('outbox/', SHA2(CONCAT(LOWER(CONCAT(DATABASE(), '.outbox_event_node/')), owner), 224))) = 1
  AND ",
    on_primary!(),
    "
ORDER BY owner"
);

/// Waits for a heartbeat of the owner that is under way, and keeps the next one waiting. Bound: the owner that is gone.
const GONE: &str = "
SELECT owner FROM outbox_event_node
WHERE owner = ? AND session = 1 AND alive_until > UTC_TIMESTAMP(6)
  AND IS_FREE_LOCK(CONCAT('outbox/', SHA2(CONCAT(LOWER(CONCAT(DATABASE(), '.outbox_event_node/')), owner), 224))) = 1
FOR UPDATE";

/// Bound: the owner that is gone.
const END_LEASE: &str = "UPDATE outbox_event_node SET alive_until = UTC_TIMESTAMP(6) WHERE owner = ?";

#[async_trait]
impl SessionStore for MySqlStore {
    async fn hold_session(&self, owner: &OwnerId) -> Result<Option<Box<dyn Session>>, StoreError> {
        let lock = self.statement(TAKE_LOCK).bind(owner.as_str());
        let taking = async {
            // First of all, before the host's other connections are as many as this user may have. One that is open may be busy or stuck.
            if self.keeper.pool().size() == 0 {
                drop(
                    self.connector
                        .ask_pool(self.keeper.pool(), |pool: sqlx::MySqlPool| async move { pool.acquire().await })
                        .await,
                );
            }
            let mut connection = opened_as_in(&self.keeper.pool(), &self.connector).await?;
            if sqlx::query(MANY_WRITERS).fetch_optional(&mut connection).await?.is_some() {
                return Ok(None);
            }
            let mut transaction = connection.begin().await?;
            let is_held = lock.fetch_one(&mut *transaction).await?.try_get::<Option<i64>, _>(0)? == Some(1);
            transaction.commit().await?;
            Ok(Some((connection, is_held)))
        };
        match within(OPENING, taking).await.map_err(|error| self.failed(HOLD, error))? {
            None => Ok(None),
            Some((_, false)) => Err(taken()),
            Some((connection, true)) => Ok(Some(Box::new(Held { store: self.clone(), connection, owner: owner.clone() }))),
        }
    }

    async fn free_sessions(&self, owner: &OwnerId) -> Result<Vec<String>, StoreError> {
        let store = &self.keeping();
        store.read_all(LOOK, store.statement(FREE).bind(owner.as_str()), |row| row.string("owner")).await
    }

    async fn abandon(&self, gone: &str) -> Result<bool, StoreError> {
        patiently(&self.keeping(), || try_abandon(self, gone)).await
    }
}

async fn try_abandon(store: &MySqlStore, gone: &str) -> Result<bool, StoreError> {
    let store = &store.keeping();
    let mut transaction = store.transaction().await?;
    let ended = end_lease(store, &mut transaction, gone).await;
    Ok(commit_if_some(store, transaction, ended).await?.is_some())
}

/// `None` if the host is not gone.
async fn end_lease(store: &MySqlStore, connection: &mut MySqlConnection, gone: &str) -> Result<Option<()>, StoreError> {
    let failed = |error| store.failed(ABANDON, error);
    if store.statement(GONE).bind(gone).fetch_optional(&mut *connection).await.map_err(failed)?.is_none() {
        return Ok(None);
    }
    store.statement(END_LEASE).bind(gone).execute(connection).await.map_err(failed)?;
    Ok(Some(()))
}

/// A connection that holds the lock of an owner. When it fails, the other connections may be well.
struct Held {
    store: MySqlStore,
    connection: MySqlConnection,
    owner: OwnerId,
}

#[async_trait]
impl Session for Held {
    async fn prove(&mut self) -> Result<(), StoreError> {
        let asking = self.store.statement(IS_HELD).bind(self.owner.as_str()).fetch_one(&mut self.connection);
        let row = within(ANSWER, asking).await.map_err(|error| failed(PROVE, error))?;
        if row.try_get::<Option<i64>, _>(0).map_err(|error| failed(PROVE, error))? == Some(1) {
            return Ok(());
        }
        let why = "the server does not know it, or a proxy handed out another connection".to_owned();
        Err(StoreError::SessionLost { why })
    }

    async fn end(self: Box<Self>) {
        let Self { store, mut connection, owner } = *self;
        let ending = async move {
            store.statement(LET_GO).bind(owner.as_str()).execute(&mut connection).await?;
            connection.close().await
        };
        // The lock ends with the connection at the latest.
        let _ = within(ANSWER, ending).await;
    }
}
