//! What wakes hosts when there is something to read.

use async_trait::async_trait;
use futures_util::future::pending;
use outbox::store::{NotifyStore, WakeUp, WakeUps};
use outbox::{StoreError, sqlx};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};

use super::MemoryStore;

#[async_trait]
impl NotifyStore for MemoryStore {
    async fn notify(&self) -> Result<(), StoreError> {
        self.run("notify", |world| {
            let is_there = world.plan.notifies;
            // Nobody has to listen.
            let _ = is_there.then(|| world.wake_ups.send(()));
        })
        .await
    }

    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        if !self.world().plan.notifies {
            return Ok(None);
        }
        let hints = self.run("listen", |world| {
            let breaks_in = (!world.is_healed() && !world.plan.is_quiet()).then(|| world.chance.millis(1_000..60_000));
            (world.wake_ups.subscribe(), breaks_in)
        });
        let (hints, breaks_in) = hints.await?;
        let breaks_at = breaks_in.map(|breaks_in| Instant::now() + breaks_in);
        Ok(Some(Box::new(MemoryWakeUps { store: self.clone(), hints, breaks_at })))
    }
}

struct MemoryWakeUps {
    store: MemoryStore,
    hints: broadcast::Receiver<()>,
    breaks_at: Option<Instant>,
}

#[async_trait]
impl WakeUps for MemoryWakeUps {
    async fn next(&mut self) -> Result<WakeUp, StoreError> {
        let breaks = async {
            match self.breaks_at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let is_broken = tokio::select! {
            _ = self.hints.recv() => false,
            () = breaks => true,
        };
        if self.store.is_killed() {
            pending::<()>().await;
        }
        if is_broken {
            let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            return Err(StoreError::Disconnected { action: "listen", source });
        }
        Ok(WakeUp::Events)
    }
}
