//! An upgrade: a host of the version before, which claims row by row whatever the partition, beside a host of this one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::{NewRow, Node, Ownership, Settled, Settlement, WriteStore as _};
use outbox::{EventId, Mode, Outbox, Store};
use support::{Database, Recorder, eventually};
use tokio::task::JoinHandle;

use crate::common::{HOUR, ROUTE, at_rest, done, eager, orders, row};

const LEASE: Duration = Duration::from_secs(3);

/// Plays a host of the version before: says that it is alive, claims whatever is due, and is done with it.
struct OldHost {
    stop: Arc<AtomicBool>,
    playing: JoinHandle<Vec<EventId>>,
}

impl OldHost {
    fn start(store: Arc<dyn Store>, mode: &'static str) -> Self {
        let owner = OwnerId::generate("old");
        let stop = Arc::new(AtomicBool::new(false));
        let playing = tokio::spawn(play(store, Node::new(owner, "old", mode, "0.0.9"), stop.clone()));
        Self { stop, playing }
    }

    /// Ends it in order; what it has delivered.
    async fn end(self) -> Vec<EventId> {
        self.stop.store(true, Ordering::SeqCst);
        self.playing.await.expect("no panic")
    }
}

async fn play(store: Arc<dyn Store>, node: Node, stop: Arc<AtomicBool>) -> Vec<EventId> {
    let mut delivered = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        store.heartbeat(&node, LEASE).await.expect("is seen");
        let claimed = support::claim_due(&*store, &node.owner, LEASE, 5).await.expect("claims");
        let outcomes: Vec<Settled> = claimed.iter().map(|claimed| Settled::new(claimed.fence, Settlement::Done)).collect();
        assert_eq!(store.settle(&outcomes).await.expect("is stored"), 0, "nobody takes what it has claimed");
        delivered.extend(claimed.iter().map(|claimed| claimed.event.as_ref().expect("readable").id()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.leave(&node.owner).await.expect("leaves");
    delivered
}

async fn insert<D: Database>(db: &D, count: u32) -> Vec<EventId> {
    let envelopes = orders(count);
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    // By the clock that hosts go by.
    db.another().await.write(&rows, &nobody).await.expect("writes");
    envelopes.iter().map(outbox::Envelope::id).collect()
}

/// How often each was delivered, by whomever.
fn counted(deliveries: impl IntoIterator<Item = EventId>) -> BTreeMap<EventId, usize> {
    let mut counts = BTreeMap::new();
    for id in deliveries {
        *counts.entry(id).or_default() += 1;
    }
    counts
}

pub(crate) async fn beside_a_host_of_the_version_before_every_event_is_delivered_once<D: Database>(db: &D) {
    let mut total = 0;
    for (mode, name) in [(Mode::SingleNode, "single_node"), (Mode::MultiNode, "multi_node")] {
        let store: Arc<dyn Store> = Arc::new(db.another().await);
        let recorder = Recorder::done();
        let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 2, ..DispatcherConfig::default() };
        let new = || async {
            let builder = Outbox::builder(db.another().await).mode(mode).dispatcher(config.clone()).poller(eager());
            builder.listener(ROUTE, recorder.listener()).start().await.expect("starts")
        };
        let mut deliveries = Vec::new();

        // The upgrade: the old one is there first, and goes while the new one is at work.
        let old = OldHost::start(store.clone(), name);
        insert(db, 100).await;
        let host = new().await;
        insert(db, 200).await;
        done(db, total + 300).await;
        deliveries.extend(old.end().await);
        // Until the new one has seen it, it claims.
        eventually("the new host reads without a claim again", async || {
            let id = insert(db, 1).await[0];
            total += 1;
            done(db, total + 300).await;
            row(db, id).await.claim_seq == 1
        })
        .await;
        at_rest(&host).await;
        assert_eq!(host.metrics().counts().fenced_outcomes, 0, "{mode:?}");
        deliveries.extend(recorder.ids());
        let counts = counted(deliveries);
        assert!(counts.values().all(|count| *count == 1), "{mode:?}: each once");

        // Back again: the old one comes while the new one reads. What that has in hand then, the old one may claim, since it knows
        // nothing of partitions: whatever comes of it twice is told of, and nothing is lost.
        total += 300;
        let before = recorder.count();
        let ids = insert(db, 300).await;
        let old = OldHost::start(store.clone(), name);
        done(db, total + 300).await;
        eventually("the new host claims too", async || {
            insert(db, 20).await;
            total += 20;
            done(db, total + 300).await;
            db.number("SELECT count(*) FROM outbox_event WHERE claim_seq > 1").await > 0
        })
        .await;
        at_rest(&host).await;
        let fenced = host.metrics().counts().fenced_outcomes;
        host.shutdown().await;
        insert(db, 20).await;
        total += 320;
        done(db, total).await;
        let old = old.end().await;
        let again: Vec<EventId> = recorder.ids().split_off(before);
        let counts = counted(again.into_iter().chain(old));
        assert!(ids.iter().all(|id| counts.contains_key(id)), "{mode:?}: none is lost");
        let twice: usize = counts.values().map(|count| count - 1).sum();
        assert!(twice as u64 <= fenced, "{mode:?}: {twice} deliveries too many, and {fenced} outcomes dropped");
    }
}
