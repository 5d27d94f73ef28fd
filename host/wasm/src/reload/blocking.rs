//! Blocking work on a file system that may hang.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

/// Runs blocking work, one piece at a time, and stops waiting for work that hangs.
#[derive(Debug)]
pub(crate) struct Blocking<T> {
    timeout: Duration,
    /// The last work, until its end was seen.
    running: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Blocking<T> {
    pub(crate) fn with_timeout(timeout: Duration) -> Self {
        Self { timeout, running: None }
    }

    /// Runs the work. If it does not end within the timeout, returns the result of earlier work that took too long. `None` without one, or if
    /// earlier work still hangs: then this work does not begin, so that a file system that hangs takes one thread.
    ///
    /// # Errors
    /// If the work panicked.
    pub(crate) async fn run(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<Result<T, JoinError>> {
        let earlier = match self.running {
            Some(_) => Some(self.ended().await?),
            None => None,
        };
        self.running = Some(tokio::task::spawn_blocking(work));
        self.ended().await.or(earlier)
    }

    async fn ended(&mut self) -> Option<Result<T, JoinError>> {
        let running = self.running.as_mut()?;
        let ended = tokio::time::timeout(self.timeout, running).await.ok()?;
        self.running = None;
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_is_left_and_no_other_begins_until_it_ends() {
        let (release, held) = mpsc::channel::<()>();
        let mut blocking = Blocking::with_timeout(Duration::from_millis(1));
        assert!(blocking.run(move || held.recv().is_err()).await.is_none());
        assert!(blocking.run(|| panic!("other work hangs")).await.is_none());

        drop(release);

        let ended = async {
            loop {
                if let Some(ended) = blocking.run(|| true).await {
                    return ended;
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it runs");
        assert!(ended.expect("no work panics"));
    }
}
