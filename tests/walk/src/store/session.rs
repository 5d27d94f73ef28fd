//! The sessions that tell when a host is gone.

use std::time::Duration;

use async_trait::async_trait;
use outbox::event::OwnerId;
use outbox::store::{Overview, Session, SessionStore};
use outbox::{StoreError, sqlx};
use tokio::time::Instant;

use super::MemoryStore;
use crate::world::{Held, World};

/// How long a session may take to answer: a store's own promise.
const ANSWER: Duration = Duration::from_secs(1);

#[async_trait]
impl SessionStore for MemoryStore {
    async fn hold_session(&self, owner: &OwnerId) -> Result<Option<Box<dyn Session>>, StoreError> {
        if !self.world().plan.sessions {
            return Ok(None);
        }
        let held = self.run("hold_session", |world| {
            if world.is_held(owner.as_str()) {
                return None;
            }
            let id = world.next_session;
            world.next_session += 1;
            world.sessions.insert(owner.as_str().to_owned(), Held { id, broken: false, until: None });
            let line = format!("{} has session {id}", world.name(self.life));
            world.note(line);
            // Dropped when its answer is lost, as its connection is.
            Some(MemorySession { store: self.clone(), owner: owner.as_str().to_owned(), id })
        });
        match held.await? {
            Some(session) => Ok(Some(Box::new(session))),
            None => {
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::WouldBlock));
                Err(StoreError::Locked { action: "take the lock of this host's session", source })
            }
        }
    }

    async fn free_sessions(&self, owner: &OwnerId) -> Result<Vec<String>, StoreError> {
        self.run("free_sessions", |world| world.free_sessions(owner.as_str())).await
    }

    async fn abandon(&self, gone: &str) -> Result<bool, StoreError> {
        self.run("abandon", |world| {
            let is_ended = !world.is_held(gone) && world.table.abandon(gone);
            let whose = world.life_of(gone).map_or_else(|| gone.to_owned(), |life| world.name(life));
            let line = format!("{} ends the leases of {whose}: {is_ended}", world.name(self.life));
            world.note(line);
            is_ended
        })
        .await
    }
}

impl World {
    /// Whether a session holds an owner's lock.
    fn is_held(&self, owner: &str) -> bool {
        self.sessions.get(owner).is_some_and(|held| held.until.is_none_or(|until| until > Instant::now()))
    }

    fn free_sessions(&self, owner: &str) -> Vec<String> {
        self.table.free_sessions(owner).into_iter().filter(|other| !self.is_held(other)).collect()
    }
}

/// The session of a host. Its lock is free when the server notices that the connection is gone.
struct MemorySession {
    store: MemoryStore,
    owner: String,
    id: u64,
}

impl MemorySession {
    fn has_lock(&self, world: &World) -> bool {
        world.sessions.get(&self.owner).is_some_and(|held| held.id == self.id && !held.broken)
    }
}

impl MemorySession {
    /// Asks for the lock, and for what the same statement sees.
    async fn ask<T>(&self, name: &'static str, look: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        let asking = self.store.run(name, |world| (self.has_lock(world), look(world)));
        match tokio::time::timeout(ANSWER, asking).await {
            Ok(Ok((true, seen))) => Ok(seen),
            Ok(Ok((false, _))) => Err(StoreError::SessionLost { why: "its connection broke".to_owned() }),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.store.world().failed(self.store.life);
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
                Err(StoreError::Disconnected { action: "ask for the lock of this host's session", source })
            }
        }
    }
}

#[async_trait]
impl Session for MemorySession {
    async fn prove(&mut self) -> Result<(), StoreError> {
        self.ask("prove", |_| ()).await
    }

    async fn prove_with_overview(&mut self) -> Result<Option<Overview>, StoreError> {
        let look = |world: &mut World| Overview {
            free_sessions: world.free_sessions(&self.owner),
            routes_digest: format!("{:?} {:?}", world.table.routes(), world.only_relayed),
        };
        self.ask("prove_with_overview", look).await.map(Some)
    }

    async fn end(self: Box<Self>) {
        let mut world = self.store.world();
        if world.sessions.get(&self.owner).is_some_and(|held| held.id == self.id) {
            world.sessions.remove(&self.owner);
        }
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        let mut world = self.store.world();
        world.break_session(&self.owner, Some(self.id));
    }
}
