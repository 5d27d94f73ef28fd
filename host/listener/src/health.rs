//! Notices when a part of the host that must run has panicked: a silent host with a growing backlog is worse than one that ends.

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The parts of the host that have panicked, in order. Empty while every part runs.
#[derive(Clone, Debug, Default)]
#[doc(hidden)] // for the host
pub struct Health(watch::Sender<Vec<&'static str>>);

impl Health {
    /// Spawns a part as a supervised task.
    pub fn spawn(&self, part: &'static str, running: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        tokio::spawn(self.clone().watched(part, running))
    }

    /// Runs a part under supervision.
    pub async fn watched(self, part: &'static str, running: impl Future<Output = ()>) {
        let _guard = Guard { health: &self, part };
        running.await;
    }

    /// Notes and logs that a part has panicked.
    pub fn note(&self, part: &'static str) {
        tracing::error!(
            target: "outbox::health",
            part,
            "a part of the host has stopped working; restart the host and report this as a bug"
        );
        self.0.send_modify(|parts| parts.push(part));
    }

    /// Waits until a part has panicked, and returns the first one. Never returns if no part panics.
    pub async fn broken(&self) -> &'static str {
        let mut health = self.0.subscribe();
        match health.wait_for(|parts| !parts.is_empty()).await.map(|parts| parts.first().copied()) {
            Ok(Some(part)) => part,
            _ => std::future::pending().await,
        }
    }

    /// The parts that have panicked, in order.
    pub fn broken_parts(&self) -> Vec<&'static str> {
        self.0.borrow().clone()
    }

    /// Waits until this part has panicked.
    pub async fn breaks(&self, part: &str) {
        self.0.subscribe().wait_for(|parts| parts.contains(&part)).await.expect("its sender is here");
    }
}

/// Records a panic that unwinds through a part.
struct Guard<'a> {
    health: &'a Health,
    part: &'static str,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.health.note(self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_noticed_and_an_end_is_not() {
        let health = Health::default();
        health.clone().watched("quiet", async {}).await;
        assert!(health.broken_parts().is_empty());
        let task = tokio::spawn(health.clone().watched("loud", async { panic!("on purpose") }));
        assert!(task.await.is_err());
        assert_eq!(health.broken().await, "loud");
        assert_eq!(health.broken_parts(), ["loud"]);
    }
}
