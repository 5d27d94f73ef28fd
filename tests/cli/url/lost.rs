//! Writing through a host whose answers do not arrive.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};

use super::*;
use crate::http::ask;

/// What becomes of a request on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The host does what it asks; the connection breaks before the answer.
    AnswerLost,
    /// A proxy has no host to send it to.
    BadGateway,
    /// There and back.
    Open,
}

/// An address before a host; each connection takes the next way, those after the last one too.
fn before(url: &str, ways: &'static [Way]) -> String {
    let host = url.strip_prefix("http://").expect("a host").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has one").to_string();
    std::thread::spawn(move || {
        for (number, near) in listener.incoming().enumerate() {
            let way = ways[number.min(ways.len() - 1)];
            let mut near = near.expect("a connection");
            let body = body_of(&mut near);
            let answer = match way {
                Way::BadGateway => "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned(),
                _ => ask(&host, "POST /v1/events", "Content-Type: application/json\r\n", &body),
            };
            if way != Way::AnswerLost {
                near.write_all(answer.as_bytes()).expect("it reads");
            }
            near.shutdown(Shutdown::Both).expect("it is open");
        }
    });
    format!("http://{address}")
}

/// Reads a request; its body.
fn body_of(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut bytes = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.expect("it says how long its body is") {
                return body.to_owned();
            }
        }
        let length = stream.read(&mut bytes).expect("it is sent");
        assert!(length > 0, "the request broke off: {text}");
        read.extend_from_slice(&bytes[..length]);
    }
}

fn emit(served: &Served, url: &str, more: &[&str]) -> Ended {
    let mut command = served.place.command(&[&["event", "emit", "--type", "X", "--payload", "1", "--url", url], more].concat());
    command.env_remove("OUTBOX_DATABASE_URL");
    Ended::of(command)
}

/// The ids of all events.
fn written(served: &Served) -> Vec<String> {
    let rows = served.place.json(&["event", "list", "--output", "json"]);
    rows.as_array().expect("rows").iter().map(|row| row["event_id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a_request_whose_answer_was_lost_is_repeated_and_writes_once() {
    let served = Served::start();
    let url = before(&served.url, &[Way::AnswerLost, Way::BadGateway, Way::Open]);

    let ended = emit(&served, &url, &[]);

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(written(&served), [ended.stdout.trim()], "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("trying again").count(), 2, "{}", ended.stderr);
}

#[test]
fn an_id_that_was_given_and_is_there_after_a_lost_answer_is_told_as_it_is() {
    let served = Served::start();
    let url = before(&served.url, &[Way::AnswerLost, Way::Open]);

    let ended = emit(&served, &url, &["--id", "e-1"]);

    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    assert!(ended.stderr.contains("exists already") && ended.stderr.contains("answer was lost"), "{}", ended.stderr);
    assert_eq!(written(&served), ["e-1"]);
}

#[test]
fn when_no_answer_comes_the_id_and_the_safe_way_to_repeat_are_told() {
    let served = Served::start();
    let url = before(&served.url, &[Way::AnswerLost]);

    let ended = emit(&served, &url, &[]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert_eq!(ended.stdout, "", "no id is printed of an event that may not be there");
    let [id] = &written(&served)[..] else { panic!("it was written once: {:?}", written(&served)) };
    for part in [&format!("outbox event show {id}"), &format!("the same command with --id {id}")] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!(emit(&served, &served.url, &["--id", id]).code, Some(7), "the repeat writes nothing");
    assert_eq!(written(&served).len(), 1);
}

#[test]
fn where_nothing_was_sent_nothing_is_said_to_be_in_doubt() {
    let served = Served::start();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it has one");

    let ended = emit(&served, &format!("http://{closed}"), &[]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot be reached") && !ended.stderr.contains("not known"), "{}", ended.stderr);
}

#[test]
fn lines_whose_answer_was_lost_are_written_once_and_told() {
    let served = Served::start();
    let lines = "{\"event_type\":\"Line\",\"payload\":1}\n{\"event_type\":\"Line\",\"payload\":2}\n";
    std::fs::write(served.place.path().join("lines.jsonl"), lines).expect("can be written");
    let send = |url: &str| served.place.run(&["event", "emit", "--jsonl", "lines.jsonl", "--url", url]);

    let ended = send(&before(&served.url, &[Way::AnswerLost, Way::Open]));

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), written(&served), "{}", ended.stderr);
    assert_eq!(written(&served).len(), 2);

    let lost = send(&before(&served.url, &[Way::AnswerLost]));
    assert_eq!(lost.code, Some(5), "{}", lost.stderr);
    let first = &written(&served)[2];
    assert!(lost.stderr.contains(&format!("it is not known whether 2 events from {first} on were written")), "{}", lost.stderr);
    assert_eq!(written(&served).len(), 4, "four requests wrote two events once");
}

#[test]
fn ctrl_c_while_an_answer_is_waited_for_tells_what_is_not_known_and_how_to_go_on() {
    let place = Place::empty();
    // Takes connections, and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", mute.local_addr().expect("it has one"));
    let mut emitting =
        Host::of(place.command(&["event", "emit", "--type", "X", "--payload", "1", "--id", "e-1", "--url", &url]));
    emitting.wait_until_it_said("what it waits for", |line| line.contains(&url) && line.contains("has not answered for"));

    emitting.signal("INT");
    let (status, said) = emitting.end();

    let said = said.join("\n");
    assert_eq!(status.code(), Some(130), "{said}");
    for part in [
        "it is not known whether the event e-1 was written".to_owned(),
        format!("run `outbox event show e-1 --url {url}` to find out"),
        "the same command with --id e-1".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
}
