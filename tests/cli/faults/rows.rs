//! One row that the database or its writer made odd.

use super::fixture::Fixture;
use super::{Fault, Repeats};

/// The payload is stored outside of its row.
const LARGE: usize = 4_000;

/// Damages each payload that is stored outside of its row. A user may change the table of these payloads only as an ordinary table.
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

const REFUSED: &[&str] = &["refuses to store the outcome of 1 event", "the order is archived"];
const LEFT_AS_IT_WAS: &[&str] = &["refuses to store the outcome of 1 event", "left the row as it was"];

pub(super) const POSTGRES: &[Fault] = &[
    Fault {
        name: "a trigger refuses the outcome of one row",
        apply: |fixture| {
            add_trigger(fixture, "UPDATE", "RAISE EXCEPTION 'the order is archived'");
            fixture.write_odd(&[]);
        },
        undo: drop_trigger,
        doctor: Some(&["outcomes: ", "refuses to store the outcome of 1 event", "{event}", "the order is archived"]),
        overview: Some(REFUSED),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "a trigger leaves one row as it was",
        apply: |fixture| {
            add_trigger(fixture, "UPDATE", "RETURN NULL");
            fixture.write_odd(&[]);
        },
        undo: drop_trigger,
        doctor: Some(&["outcomes: ", "refuses to store the outcome of 1 event", "{event}", "left the row as it was"]),
        overview: Some(LEFT_AS_IT_WAS),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "the purge cannot delete one row",
        apply: |fixture| {
            add_trigger(fixture, "DELETE", "RAISE EXCEPTION 'the order is archived'");
            fixture.write_odd(&[]);
            let odd = fixture.odd();
            fixture.wait_until_any(&format!("SELECT count(*) FROM outbox_event WHERE event_id = '{odd}' AND status = 1"));
            fixture.sql(&format!(
                "UPDATE outbox_event SET done_at = now() - interval '30 days' WHERE event_id = '{odd}' AND status = 1"
            ));
        },
        undo: drop_trigger,
        doctor: Some(&["purge: ", "{event}"]),
        overview: Some(&["delete"]),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "the payload of one row is damaged",
        apply: |fixture| {
            let odd = fixture.choose_odd();
            fixture.sql("ALTER TABLE outbox_event ALTER payload SET STORAGE EXTERNAL");
            let payload = format!("convert_to('\"{}\"', 'UTF8')", "x".repeat(LARGE));
            fixture.write_odd_with(&format!(
                "BEGIN;
                 INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
                 VALUES ('{odd}', 'Changed', 'Rough', '{odd}', {payload});
                 {DAMAGE};
                 COMMIT"
            ));
        },
        undo: |fixture| fixture.delete_odd(),
        doctor: Some(&["{event}"]),
        overview: Some(&["payload"]),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "created_at of one row is hours ahead",
        apply: |fixture| {
            fixture.choose_odd();
            fixture.write_odd(&[("created_at", "now() + interval '6 hours'")]);
            fixture.wait_until_odd_is_delivered();
        },
        undo: |_| {},
        doctor: None,
        overview: None,
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "another transaction locks one row",
        apply: |fixture| {
            let odd = fixture.choose_odd();
            // Due when it is locked.
            let soon = "now() + interval '3 seconds'";
            fixture.write_odd(&[("available_at", soon), ("due_at", soon)]);
            fixture.hold(&format!("SELECT seq FROM outbox_event WHERE event_id = '{odd}' FOR UPDATE"));
            fixture.wait_until_odd_is_delivered();
        },
        undo: Fixture::release,
        doctor: Some(&["locked"]),
        overview: Some(&["locked"]),
        repeats: Repeats::OfOddEvent,
        is_writable: true,
    },
];

pub(super) const MARIADB: &[Fault] = &[
    Fault {
        name: "a trigger refuses the outcome of one row",
        apply: |fixture| {
            let odd = fixture.choose_odd();
            fixture.sql(&format!(
                "CREATE TRIGGER odd BEFORE UPDATE ON outbox_event FOR EACH ROW
                 IF OLD.event_id = '{odd}' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the order is archived'; END IF"
            ));
            fixture.write_odd(&[]);
        },
        undo: |fixture| fixture.sql("DROP TRIGGER IF EXISTS odd"),
        doctor: Some(&["outcomes: ", "refuses to store the outcome of 1 event", "{event}", "the order is archived"]),
        overview: Some(REFUSED),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "the headers of one row are no JSON",
        apply: |fixture| {
            fixture.choose_odd();
            fixture.write_odd(&[("headers", "'no JSON'")]);
        },
        undo: |fixture| fixture.delete_odd(),
        doctor: Some(&["dead: 1 event given up", "headers"]),
        overview: Some(&["1 event of Rough/Changed has been dead", "headers"]),
        repeats: Repeats::Never,
        is_writable: true,
    },
    Fault {
        name: "one dead event blocks its aggregate",
        apply: |fixture| {
            let odd = fixture.choose_odd();
            fixture.receiver().set_refused(&odd, true);
            fixture.write_odd(&[]);
            fixture.wait_until_any(&format!("SELECT count(*) FROM outbox_event WHERE event_id = '{odd}' AND status = 3"));
            fixture.write_behind_odd();
        },
        undo: |fixture| {
            fixture.receiver().set_refused(fixture.odd(), false);
            let replayed = fixture.outbox(&["dead", "replay", fixture.odd(), "--reason", "the receiver takes it"]);
            assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
        },
        doctor: Some(&["blocked: 1 event behind an earlier one"]),
        overview: Some(&["1 event of Rough/Changed has been dead", "422"]),
        repeats: Repeats::Never,
        is_writable: true,
    },
];

/// Chooses the odd event and adds a trigger for its row, on PostgreSQL.
fn add_trigger(fixture: &mut Fixture, change: &str, body: &str) {
    let odd = fixture.choose_odd();
    fixture.sql(&format!("CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$"));
    let when = format!("FOR EACH ROW WHEN (OLD.event_id = '{odd}') EXECUTE FUNCTION odd()");
    fixture.sql(&format!("CREATE TRIGGER odd BEFORE {change} ON outbox_event {when}"));
}

fn drop_trigger(fixture: &mut Fixture) {
    fixture.sql("DROP TRIGGER IF EXISTS odd ON outbox_event; DROP FUNCTION IF EXISTS odd()");
}
