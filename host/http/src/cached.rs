//! What everybody may ask of the table, kept until it is old enough: the database is asked now and then, however many ask.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// A value is at least so old before the next is asked for, and at most so old when somebody is told it.
pub(super) const YOUNGEST: Duration = Duration::from_secs(1);
pub(super) const OLDEST: Duration = Duration::from_secs(60);
/// Asking takes at most one part in this many of the time, however large the table is.
const SHARE: u32 = 20;

/// How long a value is kept that took this long to find out.
pub(super) fn rest(took: Duration) -> Duration {
    (took * SHARE).clamp(YOUNGEST, OLDEST)
}

/// The last answer to one question.
#[derive(Debug)]
pub(super) struct Cached<T>(Mutex<Option<Kept<T>>>);

#[derive(Debug)]
struct Kept<T> {
    value: T,
    since: Instant,
    until: Instant,
}

/// A value, and how old it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aged<T> {
    pub(super) value: T,
    pub(super) age: Duration,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Cached<T> {
    /// The last answer, or a new one when that is too old. Whoever asks meanwhile waits for the same answer. An error is not kept.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(super) async fn get<E, F: Future<Output = Result<T, E>>>(&self, ask: impl FnOnce() -> F) -> Result<Aged<T>, E> {
        let mut kept = self.0.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return Ok(Aged { value: kept.value.clone(), age: kept.since.elapsed() });
        }
        let since = Instant::now();
        let value = ask().await?;
        *kept = Some(Kept { value: value.clone(), since, until: Instant::now() + rest(since.elapsed()) });
        Ok(Aged { value, age: since.elapsed() })
    }

    /// Asks anew next time: somebody has just changed something.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_asks_within_a_second_is_told_the_same_and_an_error_is_not_kept() {
        let (cached, mut asked) = (Cached::default(), 0);
        let mut ask = async |answer: Result<u32, &'static str>| {
            cached
                .get(|| {
                    asked += 1;
                    async move { answer }
                })
                .await
                .map(|aged| aged.value)
        };
        assert_eq!(ask(Err("gone")).await, Err("gone"));
        assert_eq!(ask(Ok(1)).await, Ok(1));
        assert_eq!(ask(Ok(2)).await, Ok(1), "it is young");
        cached.forget().await;
        assert_eq!(ask(Ok(3)).await, Ok(3));
        assert_eq!(asked, 3);
    }

    #[test]
    fn what_is_dear_is_asked_for_seldom() {
        assert_eq!(rest(Duration::ZERO), YOUNGEST);
        assert_eq!(rest(Duration::from_secs(1)), Duration::from_secs(20));
        assert_eq!(rest(Duration::from_secs(30)), OLDEST);
    }
}
