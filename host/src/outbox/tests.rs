//! What only the inside of an outbox shows.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::event::Event;
use crate::listener::{DispatchResult, Registration};
use crate::poller::PollerConfig;
use crate::purge::PurgeConfig;
use crate::store::SqliteStore;
use crate::store::sqlite::SqliteOptions;
use crate::time::{Clock, SystemClock, Timestamp};

/// A clock that breaks whoever looks at it, once that is asked for.
#[derive(Default)]
struct Trap {
    clock: SystemClock,
    set: AtomicBool,
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.set.load(Ordering::SeqCst), "on purpose");
        self.clock.now()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_keeper_that_panics_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let trap = Arc::new(Trap::default());
    let options = SqliteOptions::new(directory.path().join("outbox.db")).create(true).clock(trap.clone());
    let store = SqliteStore::open_with(options).await.expect("opens");
    let poller = PollerConfig { interval: Duration::from_secs(3_600), ..PollerConfig::default() };
    let purge = PurgeConfig { enabled: false, ..PurgeConfig::default() };
    let outbox = Outbox::single_node(store).migrate(true).poller(poller).purge(purge).start().await.expect("starts");

    trap.set.store(true, Ordering::SeqCst);
    // A new route is noted in the table, with the time.
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let registration = Registration::new("OrderPlaced".try_into().expect("a good name"), listener);
    outbox.listeners().add("late", registration).expect("free");

    let breaks = outbox.inner.health.breaks("route keeper");
    tokio::time::timeout(Duration::from_secs(60), breaks).await.expect("it is noticed");
}
