//! The changes of a host in the audit log.

use std::time::Duration;

use outbox::Status;
use outbox::store::{Audit, AuditRecord, AuditStore};
use outbox::why::{Change, RecentChanges};
use support::{Database, Recorder, eventually};

use crate::common::{ROUTE, commit_one, outbox, reaches};

pub(crate) async fn the_start_and_the_stop_of_a_host_are_in_the_audit_log<D: Database>(db: &D) {
    let store = db.another().await;
    let before = db.now().await;
    let host = outbox(db).label("web-1").listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    eventually("the start is recorded", async || store.audit(10).await.expect("reads").len() == 1).await;

    host.shutdown().await;

    let records = store.audit(10).await.expect("reads");
    let actions: Vec<_> = records.iter().map(|record| record.action.as_str()).collect();
    assert_eq!(actions, ["stop_host", "start_host"], "the newest first");
    for AuditRecord { at, actor, selector, count, .. } in &records {
        assert_eq!(*actor, format!("web-1 {}", std::process::id()));
        assert_eq!((selector["mode"].as_str(), *count), (Some("single_node"), 1), "{selector}");
        assert!(*at >= before, "by the database's clock");
    }
}

pub(crate) async fn an_audit_log_that_cannot_be_written_stops_neither_a_host_nor_its_events<D: Database>(db: &D) {
    db.execute("ALTER TABLE outbox_event_audit RENAME TO taken_away").await;
    let host = outbox(db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    eventually("the failure is counted", async || host.metrics().counts().db_errors > 0).await;

    let id = commit_one(&host).await;

    reaches(db, id, Status::Done).await;
    support::in_time("the shutdown ends", host.shutdown()).await;
    db.execute("ALTER TABLE taken_away RENAME TO outbox_event_audit").await;
}

pub(crate) async fn a_host_without_a_label_is_named_after_its_machine<D: Database>(db: &D) {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("the kernel knows the name");
    let host = outbox(db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    host.shutdown().await;

    let records = db.store().audit(10).await.expect("reads");
    assert_eq!(records[0].actor, format!("{} {}", machine.trim(), std::process::id()));
}

pub(crate) async fn a_replay_of_many_events_hides_no_swap_of_the_last_hour<D: Database>(db: &D) {
    let store = db.store();
    let swap = serde_json::json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
    store.note(&Audit::by("web-1 4711"), "swap_plugin", &swap, 1).await.expect("notes");
    let batch = serde_json::json!({ "dead_before": "2126-11-21T08:30:00.000000Z" });
    store.note(&Audit::by("anna"), "replay", &batch, 500).await.expect("notes");
    for _ in 0..10 {
        let twice = "INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) \
                     SELECT at, actor, action, selector, count, reason FROM outbox_event_audit WHERE action = 'replay'";
        db.execute(twice).await;
    }
    let now = store.now().await.expect("tells the time");

    let recent = RecentChanges::read(&*store, now).await.expect("reads");

    let records = |changes: &[Change]| changes.iter().map(|change| change.records).sum::<u64>();
    assert_eq!((records(&recent.changes), recent.cut_at), (1_025, None));
    assert_eq!(recent.changes.last().map(|change| change.record.action.as_str()), Some("swap_plugin"));
    let later = RecentChanges::read(&*store, now.plus(Duration::from_secs(7_200))).await.expect("reads");
    assert_eq!((records(&later.changes), later.cut_at.is_some()), (500, true), "one page of older records");
}
