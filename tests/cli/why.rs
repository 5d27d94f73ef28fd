//! `outbox event why`: every state that an event can be in, and what the program says of it.

use crate::program::Place;

/// What a host writes into `locked_by`, and what it tells the others of itself.
const NODE: &str = "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
                    VALUES ('host-1', 'shop 4711', 'multi_node', '0.1.0', 1, 9000000000000000, 1, 0)";

/// A time that is over, and one that is not for a long while; microseconds.
const PAST: &str = "1000000000000000";
const FUTURE: &str = "9000000000000000";

/// A place with one order, whose row then got these columns.
fn place(columns: &str) -> Place {
    let place = Place::migrated();
    place.order("one", "42");
    if !columns.is_empty() {
        place.sql(&format!("UPDATE outbox_event SET {columns} WHERE event_id = 'one'"));
    }
    place
}

/// The state and the sentence.
fn why(place: &Place, id: &str) -> (String, String) {
    let page = place.json(&["event", "why", id, "--output", "json"]);
    let text = |name: &str| page[name].as_str().unwrap_or_else(|| panic!("no {name}: {page}")).to_owned();
    (text("state"), text("sentence"))
}

#[test]
fn each_state_has_its_sentence() {
    for (columns, state, part) in [
        (String::new(), "due", "It has been due for"),
        (
            format!("available_at = {FUTURE}, due_at = {FUTURE}"),
            "delayed",
            "Its writer asked for delivery no earlier than 2255-",
        ),
        (
            format!("status = 2, attempts = 2, due_at = {FUTURE}, last_error = 'timeout'"),
            "retrying",
            "It failed 2 times, last with: timeout. It is due in",
        ),
        (format!("deferrals = 3, due_at = {FUTURE}"), "deferred", "Its listener asked for later (3 times)"),
        (
            format!("locked_by = 'host-1', locked_at = {PAST}, claim_seq = 1, claims = 1, lease_end = {FUTURE}"),
            "claimed",
            "The host shop 4711 (alive) has it until 2255-",
        ),
        (
            format!("locked_by = 'gone-1', locked_at = {PAST}, claim_seq = 1, claims = 1, lease_end = {PAST}"),
            "lease_over",
            "The host gone-1 (not in the table of hosts) claimed it",
        ),
        (
            // The row of the host names the event.
            "attempts = attempts".to_owned(),
            "stuck",
            "the database has refused to store the outcome since 2001-",
        ),
        (format!("status = 1, due_at = NULL, done_at = {PAST}"), "done", "It was delivered at 2001-"),
        (
            format!("status = 3, due_at = NULL, done_at = {PAST}, attempts = 3, last_error = 'no'"),
            "dead",
            "after 3 failed attempts: no.",
        ),
        ("parked = 'no listener answers it', due_at = NULL".to_owned(), "parked", "had no listener for Order/OrderPlaced."),
        (format!("expires_at = {PAST}"), "expired", "marks it DEAD"),
        ("behind = 77, due_at = NULL".to_owned(), "behind", "That event no longer exists"),
    ] {
        let place = place(&columns);
        place.sql(NODE);
        if state == "stuck" {
            let refused = r#"[{"reason":"outcome_refused","count":1,"first":[{"seq":1,"event_id":"one","error":"no","since":"2001-09-09T01:46:40Z"}]}]"#;
            place.sql(&format!("UPDATE outbox_event_node SET stuck = '{refused}'"));
            let doctor = place.run(&["doctor"]);
            assert!(doctor.stdout.contains("refuses to store the outcome of 1 event"), "{}", doctor.stdout);
        }

        let (said, next) = why(&place, "one");

        assert_eq!(said, state, "{columns}: {next}");
        assert!(next.contains(part), "{columns}: {next}");
        let page = place.ok(&["event", "why", "one"]);
        assert!(page.contains(part) && page.contains("Order/OrderPlaced of 42"), "{page}");
    }
}

#[test]
fn an_event_without_a_listener_says_so_and_what_to_do() {
    let place = place("");

    let page = place.ok(&["event", "why", "one"]);

    let advice = "No host has had a listener for Order/OrderPlaced yet: add a plugin, listener or relay for it.";
    assert!(page.contains(advice) && page.contains("outbox plugin list"), "{page}");
    let relay = "[sinks.console]\nkind = \"stdout\"\n[routes.\"Order/*\"]\nsink = \"console\"\n";
    std::fs::write(place.path().join("outbox.toml"), relay).expect("written");
    let page = place.ok(&["event", "why", "one"]);
    assert!(!page.contains("listener"), "{page}");
}

#[test]
fn a_key_queue_is_followed_to_its_head_and_says_how_to_release_it() {
    let place = place("");
    place.order("two", "42");
    place.order("three", "42");
    place.sql(&format!(
        "UPDATE outbox_event SET status = 3, due_at = NULL, done_at = {PAST}, blocks = 1, last_error = 'no such customer'
         WHERE event_id = 'one'"
    ));
    place.sql("UPDATE outbox_event SET due_at = NULL, behind = seq - 1 WHERE event_id IN ('two', 'three')");

    let (state, next) = why(&place, "three");

    assert_eq!(state, "behind");
    assert!(
        next.contains("The first of the queue, one (seq 1, OrderPlaced) is DEAD") && next.contains("no such customer"),
        "{next}"
    );
    let page = place.json(&["event", "why", "three", "--output", "json"]);
    assert_eq!(page["head"]["event_id"], "one");
    assert!(
        page["actions"].as_array().is_some_and(|all| all.iter().any(|action| action["command"] == "outbox dead skip one")),
        "{page}"
    );
    let (state, next) = why(&place, "one");
    assert_eq!(state, "dead_blocking");
    assert!(next.contains("1 later event of Order/42 waits until it is replayed, skipped or discarded"), "{next}");
}

#[test]
fn a_pause_and_what_was_done_by_hand_are_told() {
    let place = place(&format!("status = 3, due_at = NULL, done_at = {PAST}, last_error = 'no'"));
    place.ok(&["dead", "replay", "one", "--reason", "it is back"]);
    place.ok(&["route", "pause", "Order/OrderPlaced", "--reason", "the mail server moves"]);

    let (state, next) = why(&place, "one");

    assert_eq!(state, "paused");
    assert!(next.contains("the mail server moves"), "{next}");
    let page = place.ok(&["event", "why", "one"]);
    assert!(page.contains(": it is back") && page.contains("pause of its route by"), "{page}");
    assert!(page.contains("outbox route resume Order/OrderPlaced"), "{page}");
}

#[test]
fn an_event_that_is_dated_ahead_lists_what_was_done_before_that_time() {
    let place = place(&format!("created_at = {FUTURE}"));
    place.ok(&["route", "pause", "Order/OrderPlaced", "--reason", "the mail server moves"]);

    let page = place.ok(&["event", "why", "one"]);

    assert!(page.contains("pause of its route by"), "{page}");
}

/// As a bulk replay leaves them: one audit record for each batch of 100 events, the first just after the event was written.
fn batches(place: &Place, count: u32, selector: &str) {
    place.sql(&format!(
        "WITH RECURSIVE batch (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM batch WHERE n < {count})
         INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason)
         SELECT (SELECT created_at FROM outbox_event WHERE event_id = 'one') + n, 'anna@shop', 'replay', '{selector}', 100, 'it is back'
         FROM batch"
    ));
}

#[test]
fn a_bulk_action_is_one_line_and_hides_nothing_that_was_done_before() {
    let job = r#"{"event_type":"OrderPlaced","dead_before":"2126-11-21T08:30:00.000000Z"}"#;
    for count in [500, 1_500] {
        let place = place("replays = 1");
        place.ok(&["route", "pause", "Order/OrderPlaced", "--reason", "the mail server moves"]);
        batches(&place, count, job);
        // Those of another event, and of events of another type: they are not this one's.
        batches(&place, 1_500, r#"{"event_id":"two"}"#);
        batches(&place, 1_500, r#"{"event_type":"OrderPaid","dead_before":"2126-11-21T08:30:00.000000Z"}"#);
        place.ok(&["route", "resume", "Order/OrderPlaced"]);

        let page = place.json(&["event", "why", "one", "--output", "json"]);

        let said = page["history"].as_array().expect("a list").iter().map(|step| step["what"].as_str().expect("a text"));
        let by_hand: Vec<&str> = said.filter(|what| what.contains(" by ") && !what.contains("clock")).collect();
        let events = count * 100;
        let one = |part: &str| by_hand.iter().filter(|what| what.contains(part)).count();
        assert_eq!(by_hand.len(), 3, "{by_hand:#?}");
        assert_eq!((one("pause of its route by "), one("resume of its route by ")), (1, 1), "{by_hand:#?}");
        let bulk = by_hand.iter().find(|what| what.starts_with("replay of ")).expect("the bulk action");
        assert!(bulk.replace(',', "").starts_with(&format!("replay of {events} dead events (")), "{bulk}");
        assert!(bulk.ends_with(" by anna@shop, maybe this one: it is back"), "{bulk}");
        let text = place.ok(&["event", "why", "one"]);
        assert_eq!(text.matches("anna@shop").count(), 1, "{text}");
        assert!(text.contains("it is back (last batch "), "{text}");
    }
}

#[test]
fn an_event_under_a_paused_pattern_names_the_pattern_and_how_to_resume_it() {
    // As a host parks it.
    let place = place("parked = 'the route Order/* is paused: the mail server moves', due_at = NULL");
    place.ok(&["route", "pause", "Order/*", "--reason", "the mail server moves"]);
    place.ok(&["route", "pause", "User/*"]);

    let (state, next) = why(&place, "one");

    assert_eq!(state, "paused", "{next}");
    assert!(next.contains("held by the pattern Order/*, which is paused by ") && next.contains("mail server"), "{next}");
    let page = place.ok(&["event", "why", "one"]);
    assert!(page.contains("pause of Order/* by") && !page.contains("User/*"), "{page}");
    assert!(page.contains("outbox route resume 'Order/*'") && !page.contains("outbox plugin list"), "{page}");
}

#[test]
fn what_went_wrong_is_told_once_and_before_where_it_happened() {
    let error = "trap: panicked: no such customer; at src/lib.rs:13:5; wasm trap: unreachable; in function 370";
    let place = place(&format!("status = 3, due_at = NULL, done_at = {PAST}, attempts = 2, last_error = '{error}'"));

    let (_, next) = why(&place, "one");
    let page = place.ok(&["event", "why", "one"]);

    assert!(next.ends_with("after 2 failed attempts: trap: panicked: no such customer."), "{next}");
    assert_eq!(page.matches("no such customer").count(), 1, "{page}");
    assert!(page.contains("\ndetails     at src/lib.rs:13:5; wasm trap: unreachable; in function 370\n"), "{page}");
    // The sentence of a parked event says nothing of earlier failures.
    place.sql("UPDATE outbox_event SET status = 2, parked = 'no listener answers it', done_at = NULL WHERE event_id = 'one'");
    assert!(place.ok(&["event", "why", "one"]).contains(&format!("\nlast error  {error}\n")));
}

#[test]
fn an_event_that_is_not_there_ends_with_3() {
    let ended = Place::migrated().run(&["event", "why", "nobody"]);

    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
}
