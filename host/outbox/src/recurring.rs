//! What is done again and again in the background, and what is said when it fails.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// Something that is done again and again in the background.
pub(crate) trait Recurring: Send + Sized {
    /// Does it once, and returns how long to rest.
    fn run_once(&mut self) -> impl Future<Output = Duration> + Send;

    /// How long to rest before the first time.
    fn first_rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Ends a rest early when it is ready. It is dropped with every rest that ends otherwise.
    fn woken(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Does it until it is stopped. Only rests are cut short by a stop, never a statement.
    fn run(mut self, mut stopped: watch::Receiver<bool>) -> impl Future<Output = ()> + Send {
        async move {
            let mut rest = self.first_rest();
            loop {
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                    () = self.woken() => {}
                    () = tokio::time::sleep(rest) => {}
                }
                rest = self.run_once().await;
            }
        }
    }
}

/// Whether something fails just now, so that its first failure is logged, and the first success after it, and nothing between.
#[derive(Debug, Default)]
pub(crate) struct Outage(AtomicBool);

impl Outage {
    /// Notes how it went. `tell_failure` is given the error and its causes.
    pub(crate) fn note<T, E: Error>(
        &self,
        result: Result<T, E>,
        tell_failure: impl FnOnce(String),
        tell_recovery: impl FnOnce(),
    ) -> Option<T> {
        match result {
            Ok(value) => {
                if self.ends() {
                    tell_recovery();
                }
                Some(value)
            }
            Err(error) => {
                if self.begins() {
                    tell_failure(crate::chain(&error));
                }
                None
            }
        }
    }

    /// Notes a failure. True for the first one.
    pub(crate) fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Notes a success. True for the first one after a failure.
    pub(crate) fn ends(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tokio::sync::{Notify, mpsc};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_failure_and_the_recovery_are_each_told_once() {
        let (outage, mut told) = (Outage::default(), Vec::new());
        let refused = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));

        let values: Vec<Option<u8>> = [Ok(1), refused(), refused(), Ok(2), Ok(3), refused()]
            .into_iter()
            .map(|result| {
                let (mut failure, mut recovery) = (None, None);
                let value = outage.note(result, |error| failure = Some(error), || recovery = Some("works".to_owned()));
                told.extend(failure.or(recovery));
                value
            })
            .collect();

        assert_eq!(values, [Some(1), None, None, Some(2), Some(3), None]);
        assert_eq!(told, ["connection refused", "works", "connection refused"]);
    }

    /// Tells when it begins, and ends when it may.
    struct Slow {
        began: mpsc::UnboundedSender<()>,
        may_end: Arc<Notify>,
        woken: Arc<Notify>,
        first_rest: Duration,
    }

    impl Recurring for Slow {
        async fn run_once(&mut self) -> Duration {
            self.began.send(()).expect("the test listens");
            self.may_end.notified().await;
            HOUR
        }

        fn first_rest(&self) -> Duration {
            self.first_rest
        }

        async fn woken(&mut self) {
            self.woken.notified().await;
        }
    }

    #[tokio::test]
    async fn a_rest_is_cut_short_and_what_has_begun_is_not() {
        let (began, mut begins) = mpsc::unbounded_channel();
        let (may_end, woken) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let (stop, stopped) = watch::channel(false);
        let slow = Slow { began, may_end: may_end.clone(), woken: woken.clone(), first_rest: Duration::ZERO };
        let mut running = tokio::spawn(slow.run(stopped));
        begins.recv().await.expect("begins at once");
        may_end.notify_one();
        woken.notify_one();
        begins.recv().await.expect("does not rest for an hour");

        stop.send_replace(true);

        assert!(futures_util::poll!(&mut running).is_pending(), "what has begun comes to its end");
        may_end.notify_one();
        running.await.expect("the rest ends with the stop");
        assert!(begins.recv().await.is_none(), "it did not begin again");
    }

    #[tokio::test]
    async fn a_stop_during_the_first_rest_ends_it_before_it_began() {
        let (began, mut begins) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let slow = Slow { began, may_end: Arc::default(), woken: Arc::default(), first_rest: HOUR };
        let running = tokio::spawn(slow.run(stopped));

        stop.send_replace(true);

        running.await.expect("ends");
        assert!(begins.recv().await.is_none());
    }
}
