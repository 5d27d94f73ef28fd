//! `outbox top`: on a terminal, which it leaves as it was, and in a pipe.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::Instant;

use crate::program::{PATIENCE, Place, end};

#[test]
fn in_a_pipe_it_prints_one_line_for_each_look() {
    let place = Place::migrated();
    place.order("one", "42");

    let lines = place.ok(&["top", "--interval", "100ms", "--count", "3"]);
    let json = place.ok(&["top", "--interval", "100ms", "--count", "2", "--output", "json"]);

    assert_eq!(lines.lines().count(), 4, "a title and three looks: {lines}");
    let documents: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).expect("one a line")).collect();
    assert_eq!(documents.len(), 2);
    assert_eq!((documents[1]["new"].as_u64(), documents[1]["dead"].as_u64()), (Some(1), Some(0)));
    assert!(documents[0]["written_per_second"].is_null(), "one look tells no rate: {json}");
    assert_eq!(documents[1]["written_per_second"].as_f64(), Some(0.0), "{json}");
    assert!(documents[1]["oldest_pending_seconds"]["waits_for_host"].is_number() && documents[1]["at"].is_string(), "{json}");
}

#[test]
fn json_line_has_the_busiest_100_routes_and_the_number_of_the_others() {
    let place = Place::migrated();
    let event =
        |number: usize| format!("{{\"event_type\":\"Event{number:03}\",\"aggregate_type\":\"Order\",\"payload\":{number}}}\n");
    let lines: String = (0..120).map(event).chain([event(119)]).collect();
    fs::write(place.path().join("events.jsonl"), lines).expect("written");
    place.ok(&["event", "emit", "--jsonl", "events.jsonl"]);
    place.ok(&["route", "pause", "Order/Event119", "--reason", "test"]);

    let line = place.json(&["top", "--count", "1", "--output", "json"]);

    let routes = line["routes"].as_array().expect("a list");
    assert_eq!((routes.len(), line["more_routes"].as_u64()), (100, Some(20)), "{line}");
    let names: Vec<&str> = routes.iter().filter_map(|route| route["event_type"].as_str()).collect();
    assert_eq!(names[..3], ["Event119", "Event000", "Event001"], "the busiest first, then by name");
    assert_eq!((routes[0]["waiting"].as_u64(), &routes[0]["held_by"]), (Some(2), &serde_json::json!(["Order/Event119"])));
}

/// Runs it on a terminal of its own, which `script` makes, and ends it by this key. What it showed, and how the terminal was
/// set before and after.
fn on_a_terminal(place: &Place, key: u8) -> (String, [String; 2]) {
    let line = "script -qefc 'trap : INT; stty rows 24 cols 80; stty -a >before; outbox top --interval 100ms; echo $? >code; stty -a >after' shown";
    let mut command = place.shell(line);
    command.env_remove("NO_COLOR").env("OUTBOX_DATABASE_URL", place.url());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("`script` of util-linux is there");
    let read = |file: &str| fs::read_to_string(place.path().join(file)).unwrap_or_default();
    let started = Instant::now();
    while !read("shown").contains("Order/OrderPlaced") {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: it shows the routes, not {}", read("shown"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut keys = child.stdin.take().expect("it is piped");
    keys.write_all(&[b'x', key]).expect("it reads");
    keys.flush().expect("it reads");
    let status = end(&mut child, "outbox top ends by its key");
    assert!(status.success(), "{status}: {}", read("shown"));
    assert_eq!(read("code").trim(), "0", "{}", read("shown"));
    (read("shown"), [read("before"), read("after")])
}

#[test]
fn on_a_terminal_it_draws_over_itself_and_leaves_everything_as_it_was() {
    for key in [b'q', 3] {
        let place = Place::migrated();
        place.order("one", "42");

        let (shown, [before, after]) = on_a_terminal(&place, key);

        assert_eq!(before, after, "the terminal is set as before");
        let screens = [shown.find("\u{1b}[?1049h"), shown.rfind("\u{1b}[?1049l")];
        assert!(screens.iter().all(Option::is_some) && screens.is_sorted(), "a screen of its own, and back: {shown}");
        assert!(shown.rfind("\u{1b}[?25h") > shown.rfind("\u{1b}[?25l"), "the cursor is there again");
        assert!(shown.contains("written") && shown.contains("q quits") && shown.contains("no host is running"), "{shown}");
    }
}
