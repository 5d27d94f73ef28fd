//! The document of the API against the host that it describes: requests that it allows and requests that it forbids, made up by
//! schemathesis.

use support::python;

use crate::http::{ask, listening};
use crate::program::{Ended, Place};

/// What a host must never do, whatever it is sent.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,unsupported_method";

/// How many random requests each operation gets, after those that try every limit of the document once. `OUTBOX_TEST_REQUESTS`
/// overrides it.
const REQUESTS: &str = "10";

#[test]
fn whatever_the_document_allows_or_forbids_is_answered_as_it_says() {
    let place = Place::migrated();
    let made = place.run(&["token", "new", "--name", "fuzzer", "--role", "admin"]);
    let (token, (_, lines)) = (made.stdout.trim(), made.stderr.split_once("\n\n").expect("the lines follow"));
    std::fs::write(place.path().join("outbox.toml"), lines).expect("can be written");
    let (_host, address) = listening(&place, &["--set", "dispatcher.unroutable_grace=0s"]);
    let bearer = format!("Authorization: Bearer {token}");
    // Some rows to find: no listener answers them, and they die.
    for number in 0..3 {
        let event = format!(r#"{{"event_id":"dead-{number}","event_type":"Nobody","payload":{{"number":{number}}}}}"#);
        let answer = ask(&address, "POST /v1/events", &format!("{bearer}\r\nContent-Type: application/json\r\n"), &event);
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }

    let mut fuzzer = python();
    fuzzer.args(["-c", "from schemathesis.cli import schemathesis; schemathesis()", "--no-color", "run"]);
    fuzzer.args([&format!("http://{address}/openapi.json"), "--url", &format!("http://{address}"), "--header", &bearer]);
    // A stream does not end; it has tests of its own.
    fuzzer.args(["--exclude-path", "/v1/stream", "--checks", CHECKS, "--phases", "examples,coverage,fuzzing"]);
    fuzzer.args(["--max-examples", &requests(), "--generation-deterministic"]);
    fuzzer.args(["--continue-on-failure", "--request-timeout", "30", "--warnings", "off"]);
    fuzzer.current_dir(place.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = Ended::within(std::time::Duration::from_secs(3_600), fuzzer);

    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("Selected: 26/27"), "it found the operations: {}", ended.stdout);
    for path in ["GET /readyz", "GET /v1/stats"] {
        let answer = ask(&address, path, &format!("{bearer}\r\n"), "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
}

#[expect(clippy::disallowed_methods, reason = "OUTBOX_TEST_REQUESTS sets the length of the run")]
fn requests() -> String {
    std::env::var("OUTBOX_TEST_REQUESTS").unwrap_or_else(|_| REQUESTS.to_owned())
}
