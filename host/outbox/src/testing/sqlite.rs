//! An outbox in a SQLite file of its own.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::{Written, until_idle, written};
use crate::event::EventId;
use crate::outbox::{Outbox, OutboxBuilder, StartError};
use crate::store::SqliteStore;
use crate::time::system_clock;

/// An outbox for one test, in a temporary SQLite file that is removed with it. It reads as the [`Outbox`] itself.
///
/// The file would not survive a power cut, which makes it fast.
pub struct TestOutbox {
    outbox: Outbox<SqliteStore>,
    store: SqliteStore,
    pool: SqlitePool,
    // Last: removed when the others are gone.
    _file: TemporaryFile,
}

/// Starts an outbox without listeners: its events are parked.
///
/// # Errors
/// See [`StartError`]; when the system's directory for temporary files cannot be written, for example.
pub async fn start() -> Result<TestOutbox, StartError> {
    start_with(|builder, _| builder).await
}

/// Starts an outbox that the test completes: with listeners, their state, hooks. It is given the [pool](TestOutbox::pool) as
/// well, for state that needs it.
///
/// # Errors
/// See [`StartError`].
pub async fn start_with<T: Send + Sync + 'static>(
    complete: impl FnOnce(OutboxBuilder<SqliteStore>, &SqlitePool) -> OutboxBuilder<SqliteStore, T>,
) -> Result<TestOutbox, StartError> {
    let file = TemporaryFile::unused();
    let connect = SqliteConnectOptions::new()
        .filename(&file.0)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Off);
    // One connection for all writes: the service and the host take turns.
    let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let pool = options.connect_lazy_with(connect);
    let store = SqliteStore::new(pool.clone());
    let outbox = complete(Outbox::single_node(store.clone()), &pool).migrate(true).start().await?;
    Ok(TestOutbox { outbox, store, pool, _file: file })
}

impl TestOutbox {
    /// The pool of the file, for the service's own tables. It has one connection: give it back before you ask for another.
    #[must_use]
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Waits until nothing is due, queued or with a listener; see [`until_idle`].
    ///
    /// # Panics
    /// When that takes longer than 30 s.
    pub async fn run_until_idle(&self) {
        until_idle(&self.outbox).await;
    }

    /// Asks for the events of a type that were written; see [`written`].
    pub fn written(&self, event_type: impl AsRef<str>) -> Written {
        written(&self.outbox, event_type)
    }

    /// Lets time pass for all events in the table, once no event is due: delays, further attempts and expiries come nearer by
    /// `span`. Follow it with [`run_until_idle`](Self::run_until_idle).
    ///
    /// It sets back every time of every row, and changes no clock: events that are written later are not affected. Pauses of a
    /// listener that fails again and again, and everything else that waits in memory, take their real time.
    ///
    /// # Panics
    /// When the outbox does not become idle first, or the database fails.
    pub async fn advance(&self, span: Duration) {
        self.run_until_idle().await;
        self.store.let_pass(span).await.expect("the times of a test's events can be set back");
        self.outbox.look();
    }
}

impl Deref for TestOutbox {
    type Target = Outbox<SqliteStore>;

    fn deref(&self) -> &Outbox<SqliteStore> {
        &self.outbox
    }
}

impl std::fmt::Debug for TestOutbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestOutbox").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A SQLite file that is removed with this value, with what SQLite keeps beside it.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn unused() -> Self {
        let name = format!("outbox-test-{}.db", EventId::generate(system_clock().now()));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        for beside in ["", "-wal", "-shm"] {
            let mut file = self.0.clone().into_os_string();
            file.push(beside);
            // It may never have been made; and a file that stays in a temporary directory harms nobody.
            let _ = std::fs::remove_file(file);
        }
    }
}
