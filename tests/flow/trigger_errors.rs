//! Errors that a trigger of the user raises on PostgreSQL, with the codes that the server itself uses.

use support::{Harness, Postgres, Recorder};

use crate::common::{ROUTE, outbox};
use crate::refused::{BAD, only_the_bad_one_waits};

/// As by a trigger that writes to a foreign table: the error of the remote server keeps its code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_of_an_error_in_a_trigger_is_not_taken_for_the_state_of_the_server() {
    // A standby; no disk space; no connection left; a refused login; a lost connection; a missing table.
    for code in ["25006", "53100", "53300", "28000", "08006", "42P01"] {
        let db = Postgres::fresh().await;
        let recorder = Recorder::done();
        let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
        let body = format!("BEGIN RAISE EXCEPTION 'of the remote server' USING ERRCODE = '{code}'; END");
        db.execute(&format!("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
        let when = format!("FOR EACH ROW WHEN (OLD.aggregate_id = '{BAD}') EXECUTE FUNCTION refuse()");
        db.execute(&format!("CREATE TRIGGER refused AFTER UPDATE ON outbox_event {when}")).await;

        only_the_bad_one_waits(&db, &host, "of the remote server").await;

        host.shutdown().await;
    }
}
