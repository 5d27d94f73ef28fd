//! Waiting for what must happen.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen: long enough for a machine under load, and never reached by a passing test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The longest rest between two looks. A look often counts a table, and takes processor time from what it waits for.
const LONGEST_REST: Duration = Duration::from_millis(40);

/// Looks until `holds`, at most [`PATIENCE`]: often at first.
///
/// # Panics
/// When it does not come to hold; the message is the sentence `fact`.
pub async fn eventually(fact: &str, mut holds: impl AsyncFnMut() -> bool) {
    let (started, mut rest) = (Instant::now(), Duration::from_millis(5));
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: {fact}");
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Waits for a future, at most [`PATIENCE`].
///
/// # Panics
/// When it does not end; the message is the sentence `fact`.
pub async fn in_time<T>(fact: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("expected within {PATIENCE:?}: {fact}"),
    }
}
