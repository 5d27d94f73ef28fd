//! Notices when a part of the host that must run has broken: a silent host with a growing backlog is worse than one that ends.

use tokio::sync::watch;

/// Whether every part still runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(watch::Sender<Option<&'static str>>);

impl Health {
    /// Runs a part under watch.
    pub(crate) async fn watched(self, part: &'static str, running: impl Future<Output = ()>) {
        let _guard = Guard { health: &self, part };
        running.await;
    }

    /// Waits until a part has broken, and tells which; for ever when none does.
    pub(crate) async fn broken(&self) -> &'static str {
        let mut health = self.0.subscribe();
        match health.wait_for(Option::is_some).await.map(|part| *part) {
            Ok(Some(part)) => part,
            _ => std::future::pending().await,
        }
    }
}

/// Tells of a panic that passes by.
struct Guard<'a> {
    health: &'a Health,
    part: &'static str,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(part = self.part, "a part of the host has broken; stop it and start it again, and tell its makers");
            self.health.0.send_replace(Some(self.part));
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
        assert!(health.0.borrow().is_none());
        let task = tokio::spawn(health.clone().watched("loud", async { panic!("on purpose") }));
        assert!(task.await.is_err());
        assert_eq!(health.broken().await, "loud");
    }
}
