//! The sessions of hosts: advisory locks.
//!
//! The key of an owner's lock is a hash of its name and of its table: the owners of two tables of one database do not share a lock.
//! The key is made anew in each statement, so that an owner cannot hold another lock than the one that others look at.
//!
//! Behind a pooler in transaction mode no session is held. A pooler that is not recognised does no harm either: the lock belongs to
//! a connection of the pooler, which outlives the host or ends before it. While the connection outlives the host, the lock looks
//! held, and the lease decides. When it ends first, the lock looks free though the owner lives. But the owner asks each second from
//! *its* connection, finds another one, and says that it has no session, so that nobody abandons it. [`ABANDON_OWNER`] looks at
//! both, the owner's word and the lock, in the statement that ends the lease.

use async_trait::async_trait;
use outbox_event::OwnerId;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Executor, Row};

use super::error::failed;
use super::primary::on_primary;
use super::{PostgresStore, Run};
use crate::row::Named;
use crate::run::within;
use crate::session::{ABANDON, ANSWER, HOLD, LOOK, OPENING, PROVE, opened_as_in, taken};
use crate::{Overview, Session, SessionStore, StoreError};

/// The proof of a session has one second, so no table that somebody has locked, or that is full of dead rows, may keep it waiting:
/// other connections ask again for what the overview did not tell.
const TIMEOUTS: &str = "SELECT set_config('lock_timeout', '200ms', false), set_config('statement_timeout', '500ms', false)";

/// A host whose machine lost its power says no goodbye: the server asks for a sign of life, which the system of a host gives though
/// the host itself stands still. Without effect on a socket of the same machine.
const KEEP_ALIVE: &str = "
SELECT set_config('tcp_keepalives_idle', '2', false), set_config('tcp_keepalives_interval', '1', false),
       set_config('tcp_keepalives_count', '3', false)";

/// Does not wait. $1 the owner.
const TAKE_LOCK: &str = concat!(
    r#"
SELECT pg_try_advisory_lock(hashtextextended('outbox_event_node'::regclass::oid::text || '/' || ($1::text COLLATE "C"), 0))
WHERE "#,
    on_primary!()
);

/// $1 the owner.
const LET_GO: &str = r#"
SELECT pg_advisory_unlock(hashtextextended('outbox_event_node'::regclass::oid::text || '/' || ($1::text COLLATE "C"), 0))"#;

/// $1 the owner.
const IS_HELD: &str = r#"
SELECT EXISTS (
  SELECT FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = pg_backend_pid()
    AND (classid::bigint << 32 | objid::bigint)
        = hashtextextended('outbox_event_node'::regclass::oid::text || '/' || ($1::text COLLATE "C"), 0))"#;

/// The server's locks are read once. $1 the owner who asks.
const FREE: &str = concat!(
    "
WITH locks AS MATERIALIZED (
  SELECT classid::bigint << 32 | objid::bigint AS key FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT owner FROM outbox_event_node
WHERE session = 1 AND owner <> $1::text AND alive_until > now()
  AND hashtextextended('outbox_event_node'::regclass::oid::text || '/' || owner, 0) NOT IN (SELECT key FROM locks)
  AND ",
    on_primary!(),
    "
ORDER BY owner"
);

/// [`IS_HELD`], [`FREE`] and a digest of all routes and pauses in one statement, since an idle host asks for each of them every
/// second.
/// $1 the owner.
const IS_HELD_WITH_OVERVIEW: &str = r#"
WITH locks AS MATERIALIZED (
  SELECT classid::bigint << 32 | objid::bigint AS key, pid FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT EXISTS (
         SELECT FROM locks
         WHERE pid = pg_backend_pid()
           AND key = hashtextextended('outbox_event_node'::regclass::oid::text || '/' || ($1::text COLLATE "C"), 0)) AS is_held,
       ARRAY (
         SELECT owner FROM outbox_event_node
         WHERE session = 1 AND owner <> $1::text AND alive_until > now()
           AND hashtextextended('outbox_event_node'::regclass::oid::text || '/' || owner, 0) NOT IN (SELECT key FROM locks)
         ORDER BY owner)::text[] AS free_sessions,
       (SELECT hashtextextended(coalesce(json_agg(json_build_array(aggregate_type, event_type, route.first_seen_at, route.only_relayed,
                                                                       pause.paused_at, pause.paused_by, pause.reason)
                                     ORDER BY aggregate_type, event_type)::text, ''), 0)::text
        FROM outbox_event_route AS route FULL JOIN outbox_event_pause AS pause USING (aggregate_type, event_type)) AS routes_digest"#;

/// Waits for a heartbeat of the owner that is under way, and looks at its row again. $1 the owner that is gone.
const ABANDON_OWNER: &str = "
WITH locks AS MATERIALIZED (
  SELECT classid::bigint << 32 | objid::bigint AS key FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
UPDATE outbox_event_node SET alive_until = now()
WHERE owner = $1::text AND session = 1 AND alive_until > now()
  AND hashtextextended('outbox_event_node'::regclass::oid::text || '/' || owner, 0) NOT IN (SELECT key FROM locks)";

#[async_trait]
impl SessionStore for PostgresStore {
    async fn hold_session(&self, owner: &OwnerId) -> Result<Option<Box<dyn Session>>, StoreError> {
        if self.is_pooled(HOLD).await? {
            tracing::warn!(
                target: "outbox::store::postgres",
                "a pooler in transaction mode is between this host and PostgreSQL, so the host holds no session and hears no wake-ups: \
                 if it dies, others wait for the end of its lease, and events of other programs are found by polling; give the host \
                 a direct connection"
            );
            return Ok(None);
        }
        let lock = self.statement(TAKE_LOCK).bind(owner.as_str());
        let taking = async {
            // First of all, before the host's other connections are as many as this user may have. One that is open may be busy or stuck.
            if self.keeper.pool().size() == 0 {
                drop(
                    self.connector.ask_pool(self.keeper.pool(), |pool: sqlx::PgPool| async move { pool.acquire().await }).await,
                );
            }
            let mut connection = opened_as_in(&self.keeper.pool(), &self.connector).await?;
            connection.execute(KEEP_ALIVE).await?;
            connection.execute(TIMEOUTS).await?;
            let is_held: bool = lock.fetch_one(&mut connection).await?.try_get(0)?;
            Ok((connection, is_held))
        };
        let (connection, is_held) = within(OPENING, taking).await.map_err(|error| self.failed(HOLD, error))?;
        if !is_held {
            return Err(taken());
        }
        Ok(Some(Box::new(Held { store: self.clone(), connection, owner: owner.clone() })))
    }

    async fn free_sessions(&self, owner: &OwnerId) -> Result<Vec<String>, StoreError> {
        let store = &self.keeping();
        store.read_all(LOOK, store.statement(FREE).bind(owner.as_str()), |row| row.string("owner")).await
    }

    async fn abandon(&self, gone: &str) -> Result<bool, StoreError> {
        let store = &self.keeping();
        Ok(store.execute(ABANDON, store.statement(ABANDON_OWNER).bind(gone)).await? > 0)
    }
}

fn lost() -> StoreError {
    let why = "the server does not know it, or a pooler in transaction mode handed out another connection".to_owned();
    StoreError::SessionLost { why }
}

/// A connection that holds the lock of an owner. When it fails, the other connections may be well.
struct Held {
    store: PostgresStore,
    connection: PgConnection,
    owner: OwnerId,
}

#[async_trait]
impl Session for Held {
    async fn prove(&mut self) -> Result<(), StoreError> {
        let asking = self.store.statement(IS_HELD).bind(self.owner.as_str()).fetch_one(&mut self.connection);
        let row = within(ANSWER, asking).await.map_err(|error| failed(PROVE, error))?;
        if row.try_get(0).map_err(|error| failed(PROVE, error))? {
            return Ok(());
        }
        Err(lost())
    }

    async fn prove_with_overview(&mut self) -> Result<Option<Overview>, StoreError> {
        let asking = self.store.statement(IS_HELD_WITH_OVERVIEW).bind(self.owner.as_str()).fetch_one(&mut self.connection);
        let row = match within(ANSWER, asking).await {
            Ok(row) => row,
            // The overview failed, not the proof: a table is locked, or not as this version knows it.
            Err(sqlx::Error::Database(_)) => return self.prove().await.map(|()| None),
            Err(error) => return Err(failed(PROVE, error)),
        };
        let read = |row: &PgRow| {
            let (free_sessions, routes_digest) = (row.try_get("free_sessions")?, row.try_get("routes_digest")?);
            Ok((row.try_get("is_held")?, Overview { free_sessions, routes_digest }))
        };
        let (is_held, overview): (bool, Overview) = read(&row).map_err(|error| failed(PROVE, error))?;
        if is_held { Ok(Some(overview)) } else { Err(lost()) }
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
