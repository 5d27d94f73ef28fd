//! A row whose payload the database cannot return.

use std::collections::BTreeSet;

use outbox::event::OwnerId;
use outbox::store::{NewRow, NodeRecord, Ownership, StuckReason};
use outbox::why::ReasonCode;
use outbox::{Envelope, Mode, Outbox};
use support::{Database, Harness, Postgres, Recorder, eventually};

use crate::common::{HOUR, ROUTE, done, eager, orders};

/// Damages each payload that is stored outside its row. A user may change the table of these payloads only as an ordinary table.
const DAMAGE: &str = "
DO $$
DECLARE
  toast regclass;
BEGIN
  SELECT reltoastrelid INTO toast FROM pg_class WHERE oid = 'outbox_event'::regclass;
  UPDATE pg_class SET relkind = 'r' WHERE oid = toast;
  EXECUTE format('INSERT INTO %s SELECT chunk_id, chunk_seq + 100, chunk_data FROM %s', toast, toast);
  UPDATE pg_class SET relkind = 't' WHERE oid = toast;
END $$";

const OTHERS: u32 = 20;
/// How many events are written before the damaged one.
const BEFORE: usize = 10;

fn of_damaged_aggregate(text: &str) -> Envelope {
    Envelope::new("OrderPlaced").aggregate("Order", "damaged").json(&text).expect("a good envelope")
}

pub(crate) async fn an_event_whose_payload_cannot_be_returned_holds_up_no_other(db: &Postgres) {
    db.execute("ALTER TABLE outbox_event ALTER payload SET STORAGE EXTERNAL").await;
    let (others, before) = (u64::from(OTHERS), BEFORE as u64);
    for (mode, delivered) in [(Mode::MultiNode, others + 1), (Mode::OrderedByAggregate, others), (Mode::Ordered, before)] {
        let recorder = Recorder::done();
        let mut envelopes = orders(OTHERS);
        envelopes.insert(BEFORE, of_damaged_aggregate(&"x".repeat(4_000)));
        envelopes.push(of_damaged_aggregate("later"));
        let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
        let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
        db.store().write(&rows, &nobody).await.expect("writes");
        db.execute(DAMAGE).await;

        let host = Outbox::builder(db.typed()).mode(mode).poller(eager()).listener(ROUTE, recorder.listener());
        let host = host.start().await.expect("starts");
        done(db, delivered).await;
        let errors = host.metrics().counts().db_errors;
        eventually("it is read again", async || host.metrics().counts().db_errors > errors + 1).await;
        assert_eq!(db.store().stats().await.expect("counts").done, delivered, "{mode:?}: no event overtakes it");
        let damaged = envelopes[BEFORE].id();
        eventually("the host names it", async || {
            let nodes = db.store().nodes().await.expect("lists");
            let stuck = NodeRecord::stuck_at_live(&nodes, StuckReason::ClaimRefused);
            stuck.is_some_and(|stuck| stuck.first.iter().any(|one| one.event_id == Some(damaged)))
        })
        .await;
        let why = outbox::why::explain(&*db.store(), damaged, Vec::new()).await.expect("explains").expect("is there");
        assert_eq!(why.reason, ReasonCode::ClaimRefused, "{mode:?}: {}", why.sentence);

        // As an operator who cannot repair the row.
        db.execute("DELETE FROM outbox_event WHERE aggregate_id = 'damaged' AND octet_length(payload) > 2000").await;
        done(db, others + 1).await;
        let calls = recorder.ids();
        assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "{mode:?}: no event is delivered twice");
        assert!(!calls.contains(&envelopes[BEFORE].id()), "{mode:?}");
        host.shutdown().await;
        db.execute("DELETE FROM outbox_event").await;
        db.execute("DELETE FROM outbox_event_node").await;
    }
}
