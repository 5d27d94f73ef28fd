//! The store in memory: the model's tables behind the host's traits, and a database between them that fails as the seed says.
//! The files below have the names of the host's roles (`host/store/src/`).
//!
//! Each call has its effect at one instant. It reads what was there at that instant, however late the answer comes.

mod claim;
mod effects;
mod keys;
mod lease;
mod node;
mod notify;
mod partition;
mod purge;
mod read;
mod route;
mod session;
mod settle;
mod unasked;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::pending;
use outbox::store::{Index, Migration, SchemaStore, Store};
use outbox::time::Timestamp;
use outbox::{StoreError, sqlx};
use tokio::time::{Instant, sleep_until};

use crate::fate::FateEnd;
use crate::world::{Shared, World, lock};

/// How long a statement waits for a row that somebody else has locked, as on PostgreSQL and MySQL.
const PATIENCE: Duration = Duration::from_secs(2);

/// The database, as one host sees it.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    pub(crate) world: Shared,
    pub(crate) life: usize,
}

impl MemoryStore {
    /// One call that waits for nobody.
    pub(crate) async fn run<T>(&self, name: &'static str, effect: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        self.run_on(&[], name, effect).await
    }

    /// One call that waits until nobody else has these rows locked.
    async fn run_on<T>(&self, rows: &[u64], name: &'static str, effect: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        let fate = {
            let mut world = self.world();
            world.is_asked(self.life, name);
            world.fate(self.life, name)
        };
        if self.is_killed() {
            pending::<()>().await;
        }
        if fate.is_fault() {
            let mut world = self.world();
            let line = format!("{} {name}: {}", world.name(self.life), fate.shown());
            world.note(line);
            world.failed(self.life);
        }
        self.takes(fate.before).await;
        if self.is_killed() && !fate.outlives {
            pending::<()>().await;
        }
        if let FateEnd::Refused(error) = fate.end {
            return self.answer(fate.after, Err(error)).await;
        }
        if let Some(error) = self.wait_for(rows, name).await {
            return self.answer(fate.after, Err(error)).await;
        }
        let done = {
            let mut world = self.world();
            world.tick();
            effect(&mut world)
        };
        let answer = if let FateEnd::Lost(error) = fate.end { Err(error) } else { Ok(done) };
        self.answer(fate.after, answer).await
    }

    /// Lets time pass, until the database is well.
    async fn takes(&self, span: Duration) {
        const WELL: Duration = Duration::from_millis(2);
        let mut healed = self.world().healed.subscribe();
        let _ = tokio::time::timeout(span, healed.wait_for(|healed| *healed && span > WELL)).await;
    }

    async fn answer<T>(&self, after: Duration, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.takes(after).await;
        if self.is_killed() {
            pending::<()>().await;
        }
        if answer.is_err() {
            self.world().failed(self.life);
        }
        answer
    }

    /// Waits until nobody else has these rows locked; for too long, the database ends the statement.
    async fn wait_for(&self, rows: &[u64], name: &str) -> Option<StoreError> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let until = self.world().locked_until(rows)?;
            if Instant::now() >= patience {
                let mut world = self.world();
                let line = format!("{} {name}: waited for locked rows of {rows:?} in vain", world.name(self.life));
                world.note(line);
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
                return Some(StoreError::Locked { action: "wait for rows", source });
            }
            self.world().failed(self.life);
            sleep_until(until.min(patience)).await;
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        lock(&self.world)
    }

    fn is_killed(&self) -> bool {
        self.world().lives[self.life].killed
    }
}

/// The error of a statement one of whose rows may not be changed.
fn refused_by_trigger(action: &'static str) -> StoreError {
    StoreError::Failed { action, source: sqlx::Error::Protocol("a trigger refuses it".into()) }
}

#[async_trait]
impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.run("now", |world| world.table.now).await
    }

    async fn close(&self) {}
}

#[async_trait]
impl SchemaStore for MemoryStore {
    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok("outbox_event".to_owned())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        self.run("check_schema", |_| ()).await
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        unreachable!("nobody migrates what is in memory")
    }

    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        unreachable!("nobody migrates what is in memory")
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        unreachable!("nobody migrates what is in memory")
    }

    async fn migrate_reset(&self) -> Result<Vec<Migration>, StoreError> {
        unreachable!("the table in memory has no schema")
    }

    async fn empty_tables(&self) -> Result<u64, StoreError> {
        unreachable!("no host empties its tables")
    }

    async fn add_index(&self, _: Index) -> Result<bool, StoreError> {
        unreachable!("the table in memory has no indexes")
    }

    async fn check_index(&self, _: Index) -> Result<(), StoreError> {
        self.run("check_index", |_| ()).await
    }

    fn migration_sql(&self, _: Option<Index>) -> String {
        unreachable!("nobody migrates what is in memory")
    }

    fn grants_sql(&self) -> String {
        unreachable!("nobody is granted what is in memory")
    }
}
