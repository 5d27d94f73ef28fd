use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const TICK: Duration = Duration::from_millis(30);

fn walk(limits: PurgeLimits) -> (Walk, watch::Sender<bool>) {
    let closed = watch::Sender::new(false);
    let until = limits.time.map(|time| Instant::now() + time);
    let walk = Walk { until, rows: limits.rows, batch_size: 40, purged: Purged::default(), closed: closed.subscribe() };
    (walk, closed)
}

fn full(limit: u32) -> PurgeBatch {
    PurgeBatch { count: u64::from(limit), ..PurgeBatch::default() }
}

/// A full batch that takes its time.
fn slow(calls: &AtomicU32, limit: u32) -> Batch<'_> {
    calls.fetch_add(1, Ordering::SeqCst);
    Box::pin(async move {
        tokio::time::sleep(TICK).await;
        Ok(full(limit))
    })
}

#[tokio::test]
async fn a_purge_rests_at_least_as_long_as_its_batch_took() {
    let (mut walk, _open) = walk(PurgeLimits { rows: Some(80), ..PurgeLimits::default() });
    let times = Mutex::new(Vec::new());
    let note = || times.lock().unwrap().push(Instant::now());

    let delete = |limit| -> Batch<'_> {
        Box::pin(async move {
            note();
            tokio::time::sleep(TICK).await;
            note();
            Ok(full(limit))
        })
    };
    walk.run(delete, |_| {}).await.expect("runs");

    let times = times.into_inner().unwrap();
    let [began, ended, again, _] = times[..] else { panic!("two batches are eighty rows: {times:?}") };
    assert!(again - ended >= ended - began, "{times:?}");
}

#[test]
fn no_rest_is_longer_than_a_second() {
    assert_eq!(rest(TICK), TICK);
    assert_eq!(rest(Duration::from_secs(60)), Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_in_the_way_has_time_to_pass_before_half_a_batch_is_tried() {
    let (mut walk, _open) = walk(PurgeLimits::default());
    let calls = Mutex::new(Vec::new());

    let delete = |limit| -> Batch<'_> {
        calls.lock().unwrap().push((limit, Instant::now()));
        let first = calls.lock().unwrap().len() == 1;
        Box::pin(async move {
            tokio::time::sleep(TICK).await;
            if first {
                return Err(StoreError::Locked { action: "purge", source: sqlx::Error::PoolTimedOut });
            }
            Ok(PurgeBatch::default())
        })
    };
    walk.run(delete, |_| {}).await.expect("runs");

    let calls = calls.into_inner().unwrap();
    let [(40, first), (20, second)] = calls[..] else { panic!("a batch and its half: {calls:?}") };
    assert!(second - first >= TICK * 2, "{calls:?}");
}

#[tokio::test]
async fn the_time_limit_counts_from_the_beginning_of_the_whole_purge() {
    let (mut walk, _open) = walk(PurgeLimits { time: Some(TICK), ..PurgeLimits::default() });
    let (first, second) = (AtomicU32::new(0), AtomicU32::new(0));

    walk.run(|limit| slow(&first, limit), |_| {}).await.expect("runs");
    walk.run(|limit| slow(&second, limit), |_| {}).await.expect("runs");

    assert!(first.into_inner() <= 1, "the first batch uses the time up");
    assert_eq!(second.into_inner(), 0, "nothing is left of it for what comes after");
}

#[tokio::test]
async fn no_batch_begins_after_closing() {
    let (mut walk, open) = walk(PurgeLimits::default());
    let calls = AtomicU32::new(0);

    let delete = |limit| {
        open.send_replace(true);
        slow(&calls, limit)
    };
    let ended = walk.run(delete, |_| {}).await;

    assert!(matches!(ended, Err(PurgeError::Closed)));
    assert_eq!((calls.into_inner(), walk.purged.count), (1, 40), "what was deleted is known");
}
