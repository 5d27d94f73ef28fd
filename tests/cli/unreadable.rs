//! Rows that cannot be read: a session may switch the checks of the table off, and SQLite stores any bytes as text.

use crate::http::{ask, listening};
use crate::program::Place;

#[test]
fn a_row_that_cannot_be_read_hides_no_other_from_any_command_page_or_request() {
    let place = Place::migrated();
    place.order("first", "1");
    place.sql(
        "PRAGMA ignore_check_constraints = 1;
         INSERT INTO outbox_event (event_id, aggregate_type, event_type, payload) VALUES ('ü', 'Order', 'OrderPlaced', '{}')",
    );
    place.order("last", "2");
    place.sql(
        "PRAGMA ignore_check_constraints = 1;
         UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1, last_error = 'no such customer'",
    );

    for list in [["event", "list"], ["dead", "list"]] {
        let shown = place.ok(&list);
        let parts = ["first", "last", "this row cannot be read: event_id"];
        assert!(parts.iter().all(|part| shown.contains(part)), "{list:?}: {shown}");
    }
    assert_eq!(place.stat("dead"), 3);
    assert!(place.ok(&["event", "why", "first"]).contains("no such customer"));
    let doctor = place.run(&["doctor"]);
    assert!(matches!(doctor.code, Some(0 | 8)), "{}{}", doctor.stdout, doctor.stderr);

    let (host, address) = listening(&place, &[]);
    for request in ["GET /v1/events", "GET /v1/dead", "GET /events"] {
        let answer = ask(&address, request, "", "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{request}: {answer}");
        assert!(["first", "last", "event_id holds"].iter().all(|part| answer.contains(part)), "{request}: {answer}");
    }
    for request in ["GET /", "GET /dead", "GET /v1/stats", "GET /metrics", "GET /v1/events/first/why"] {
        let answer = ask(&address, request, "", "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{request}: {answer}");
    }
    drop(host);
}

#[test]
fn a_name_that_is_not_utf8_hides_no_other_from_any_report() {
    let place = Place::migrated();
    place.order("first", "1");
    place.sql("INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('odd', CAST(x'42fc' AS TEXT), '{}')");
    place.sql(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_id, payload, due_at, behind)
         VALUES ('behind', CAST(x'42fc' AS TEXT), CAST(x'42fc' AS TEXT), '{}', NULL, 2)",
    );

    let routes = place.ok(&["route", "list"]);
    assert!(routes.contains("OrderPlaced"), "{routes}");
    let doctor = place.run(&["doctor"]);
    assert!(matches!(doctor.code, Some(0 | 8)), "{}{}", doctor.stdout, doctor.stderr);

    let (host, address) = listening(&place, &[]);
    for request in ["GET /", "GET /routes", "GET /v1/routes", "GET /sinks", "GET /v1/sinks", "GET /v1/events", "GET /v1/stats"]
    {
        let answer = ask(&address, request, "", "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{request}: {answer}");
    }
    drop(host);
}
