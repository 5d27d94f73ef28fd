//! Many at once.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::store::{Settled, Settlement};
use outbox::{Envelope, EventId, Status};
use support::{Harness, Ledger, Report};
use tokio::task::JoinSet;

use crate::common::{LEASE, claim_due, event, ids, owner, ownership, plains, write};

pub(crate) async fn eight_tasks_finish_two_thousand_events_once_each(db: &dyn Harness) {
    let envelopes = plains(db, 2_000).await;
    write(db, &envelopes).await;
    let mut ledger = Ledger::default();
    ledger.committed(envelopes.iter().map(Envelope::id));

    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = db.store();
        tasks.spawn(async move {
            let mut delivered: Vec<EventId> = Vec::new();
            loop {
                let due = support::due(&*store, 17).await.expect("looks");
                if due.is_empty() {
                    return delivered;
                }
                let claimed = store.claim(&owner("host"), LEASE, &due).await.expect("claims");
                delivered.extend(ids(&claimed));
                let settled: Vec<Settled> = claimed.iter().map(|one| Settled::new(one.fence, Settlement::Done)).collect();
                assert_eq!(store.settle(&settled).await.expect("settles"), 0, "nobody else had them");
            }
        });
    }
    let delivered: Vec<EventId> = tasks.join_all().await.into_iter().flatten().collect();

    assert_eq!(ledger.compare(delivered), Report::default());
    assert_eq!(db.store().stats().await.expect("counts").done, 2_000);
}

pub(crate) async fn writers_and_claimers_at_once_lose_nothing(db: &dyn Harness) {
    const EACH: usize = 100;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let store = db.store();
        let mut envelopes = Vec::new();
        for number in 0..EACH {
            envelopes.push(event(db, "X").await.json(&number).expect("good"));
        }
        tasks.spawn(async move {
            for envelope in &envelopes {
                let row = outbox::store::NewRow { envelope, claimed: false };
                store.write(&[row], &ownership()).await.expect("writes");
            }
        });
    }
    let (store, mut seen) = (db.store(), BTreeSet::new());
    while seen.len() < 4 * EACH {
        let claimed = support::in_time("a claim is answered", claim_due(&*store, 50)).await.expect("claims");
        for one in &claimed {
            assert!(seen.insert(one.fence.sequence), "seq {} came twice", one.fence.sequence);
        }
        let settled: Vec<Settled> = claimed
            .iter()
            .map(|one| Settled::new(one.fence, Settlement::Retry { after: Duration::from_secs(60), error: String::new() }))
            .collect();
        assert_eq!(store.settle(&settled).await.expect("settles"), 0);
    }
    tasks.join_all().await;

    let filter = outbox::store::Filter { status: Some(Status::Retry), ..Default::default() };
    assert_eq!(store.list(&filter, 10_000).await.expect("lists").len(), 4 * EACH);
}
