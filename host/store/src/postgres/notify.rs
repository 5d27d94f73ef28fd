//! Wake-ups between hosts, by NOTIFY and LISTEN.
//!
//! A wake-up is sent by a statement of its own, never in the transaction of a writer: it takes a lock of the whole database at
//! commit. It is a hint; the poll is the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Executor, Row};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::failed;
use super::{PostgresStore, Run};
use crate::{NotifyStore, StoreError, WakeUp, WakeUps};

const ACTION: &str = "listen for other hosts";

/// A channel for each table of each schema, cut to the length of a name as the server cuts it.
const CHANNEL: &str = "
SELECT (relnamespace::regnamespace::text || '.' || relname)::name::text AS channel
FROM pg_class WHERE oid = to_regclass('outbox_event')";

/// $1 the text of the notification.
const NOTIFY: &str = "
SELECT pg_notify((relnamespace::regnamespace::text || '.' || relname)::name::text, $1::text)
FROM pg_class WHERE oid = to_regclass('outbox_event')";
/// What a wake-up says that is only a test.
const TEST: &str = "test";

/// A connection that was silent for this long is tested: a firewall that forgot it says nothing.
const QUIET: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

#[async_trait]
impl NotifyStore for PostgresStore {
    async fn notify(&self) -> Result<(), StoreError> {
        self.execute("tell other hosts of new events", self.statement(NOTIFY).bind("")).await?;
        Ok(())
    }

    async fn send_test_wake_up(&self) -> Result<(), StoreError> {
        self.execute("test whether wake-ups arrive", self.statement(NOTIFY).bind(TEST)).await?;
        Ok(())
    }

    /// Behind a pooler in transaction mode nobody listens: the pooler would hand the listening connection to other clients.
    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        if self.is_pooled(ACTION).await? {
            return Ok(None);
        }
        listen(self).await.map(Some)
    }
}

/// The session that listens is silent between notifications. Selects no row before version 14, which lacks the setting.
const MAY_IDLE: &str = "SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'idle_session_timeout'";

/// Listens on a connection of its own, in a task of its own, so that whoever waits may be dropped at any time.
pub(super) async fn listen(store: &PostgresStore) -> Result<Box<dyn WakeUps>, StoreError> {
    let action = ACTION;
    let row = store.optional(action, store.statement(CHANNEL)).await?;
    let Some(row) = row else {
        return Err(StoreError::NoSchema { table: store.table.to_string() });
    };
    let channel: String = row.try_get("channel").map_err(|error| failed(action, error))?;
    let connector = &store.connector;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .after_connect(|connection, _| Box::pin(async move { connection.execute(MAY_IDLE).await.map(drop) }))
        .connect_lazy_with(connector.current());
    let listening = connector.ask_pool(pool, |pool| async move { PgListener::connect_with(&pool).await });
    let mut listener = listening.await.map_err(|error| failed(action, error))?;
    listener.ignore_pool_close_event(true);
    // Wake-ups that were sent while the connection was lost are lost too: whoever waits must look for events, and listen anew.
    listener.eager_reconnect(false);
    listener.listen(&channel).await.map_err(|error| failed(action, error))?;
    let (told, heard) = mpsc::channel(1);
    let events = Arc::new(AtomicBool::new(false));
    Ok(Box::new(Heard { heard, events: events.clone(), ear: tokio::spawn(hear(listener, told, events)) }))
}

/// Passes wake-ups on, many as one, until the connection is lost.
async fn hear(mut listener: PgListener, told: mpsc::Sender<Result<(), StoreError>>, events: Arc<AtomicBool>) {
    let action = ACTION;
    loop {
        let heard = match timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(wake_up))) => {
                if wake_up.payload() != TEST {
                    events.store(true, Ordering::SeqCst);
                }
                Ok(())
            }
            Ok(Ok(None)) => Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())),
            Ok(Err(error)) => Err(error),
            Err(_) => match timeout(ANSWER, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
            },
        };
        let lost = heard.is_err();
        match heard.map_err(|error| failed(action, error)) {
            // One wake-up that waits to be read says as much as two; `events` says whether one of them was no test.
            Ok(()) => drop(told.try_send(Ok(()))),
            Err(error) => drop(told.send(Err(error)).await),
        }
        if lost || told.is_closed() {
            return;
        }
    }
}

struct Heard {
    heard: mpsc::Receiver<Result<(), StoreError>>,
    /// Whether a wake-up came that was no test, and was not read yet.
    events: Arc<AtomicBool>,
    ear: JoinHandle<()>,
}

#[async_trait]
impl WakeUps for Heard {
    async fn next(&mut self) -> Result<WakeUp, StoreError> {
        let closed = || Err(StoreError::Closed { action: ACTION });
        self.heard.recv().await.unwrap_or_else(closed)?;
        Ok(if self.events.swap(false, Ordering::SeqCst) { WakeUp::Events } else { WakeUp::Test })
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.ear.abort();
    }
}
