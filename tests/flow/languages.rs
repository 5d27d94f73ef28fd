//! Programs in other languages write with plain SQL, as the README and the migrations document it; `languages.py` is one.

use std::path::Path;
use std::sync::Arc;

use outbox::Event;
use support::{
    DOCUMENTED_PAYLOAD, Database, MySql, Postgres, Recorder, Sqlite, documented_insert, eventually, first_documented_insert,
    python,
};

use crate::common::{HOUR, ROUTE, done, nothing_else_is_delivered, outbox};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_from_python_reach_a_listener_by_sqlite() {
    let db = Sqlite::fresh().await;
    let file = db.file().to_str().expect("a temporary directory has a plain name").to_owned();
    assert_eq!(first_documented_insert(), documented_insert("SQLite"), "the README says it twice, and the same");

    events_of_a_committed_transaction_are_delivered(&db, "sqlite", &file, documented_insert("SQLite")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_from_python_reach_a_listener_by_postgres() {
    let db = Postgres::fresh().await;

    events_of_a_committed_transaction_are_delivered(&db, "postgres", db.url(), documented_insert("PostgreSQL")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_from_python_reach_a_listener_by_mysql() {
    let db = MySql::fresh().await;

    events_of_a_committed_transaction_are_delivered(&db, "mysql", &db.url(), documented_insert("MySQL")).await;
}

/// Lets the program write, and looks at what a host delivers.
async fn events_of_a_committed_transaction_are_delivered(db: &impl Database, database: &str, address: &str, insert: &str) {
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL)").await;
    let recorder = Recorder::done();
    let outbox = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("flow/languages.py");
    let mut command = python();
    command.arg(program).args([database, address, insert]);
    let written = tokio::task::spawn_blocking(move || command.output()).await.expect("does not panic").expect("Python starts");
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));

    done(db, 3).await;
    nothing_else_is_delivered(db, &outbox).await;
    let mut calls = recorder.calls();
    calls.sort_unstable_by_key(|event| event.sequence());
    let found: Vec<_> = calls.iter().map(|event| (event.aggregate_id(), &event.payload_bytes()[..])).collect();
    let text = "{\"note\": \"a\\nb \\\\ ' \\\" %s ? ünï ☃ 🦀\"}";
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(
        found,
        [(Some("42"), DOCUMENTED_PAYLOAD.as_bytes()), (Some("43"), text.as_bytes()), (Some("ördér 44"), &bytes[..])]
    );
    has_what_beside_its_payload_was_written(&calls[2]);
    assert_eq!(calls[0].content_type(), "application/json", "unless the program says otherwise");
    assert_eq!(db.number("SELECT count(*) FROM orders").await, 2, "what was rolled back is in neither table");

    db.let_pass(HOUR).await;
    eventually("the event of an hour later is delivered", async || recorder.count() == 4).await;
    assert_eq!(recorder.calls()[3].aggregate_id(), Some("later"));
    outbox.shutdown().await;
}

fn has_what_beside_its_payload_was_written(event: &Arc<Event>) {
    assert_eq!(event.tenant_id(), Some("☃"));
    assert_eq!(event.content_type(), "application/octet-stream");
    let headers: Vec<_> = event.headers().iter().collect();
    assert_eq!(headers, [("grüße", "aus Köln ☃"), ("source", "python")]);
}
