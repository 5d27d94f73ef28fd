//! Addresses where no host of ours answers, and hosts that want a token.

use std::io::Write;
use std::net::TcpListener;

use super::*;

/// Lines for three tokens, and their texts: viewer, operator, admin.
fn tokens() -> (String, [String; 3]) {
    let place = Place::empty();
    let mut lines = String::new();
    let tokens = ["viewer", "operator", "admin"].map(|role| {
        let made = place.run(&["token", "new", "--name", role, "--role", role]);
        lines.push_str(made.stderr.split_once("\n\n").expect("the lines follow").1);
        made.stdout.trim().to_owned()
    });
    (lines, tokens)
}

#[test]
fn a_token_lets_in_as_far_as_its_role_reaches_and_is_never_printed() {
    let (lines, [viewer, operator, admin]) = tokens();
    let served = Served::with(&lines);
    events(&served.place);
    let code = |arguments: &[&str], token: Option<&str>| {
        let ended = served.with_token(arguments, token);
        for secret in [&viewer, &operator, &admin] {
            assert!(!ended.stderr.contains(secret.as_str()) && !ended.stdout.contains(secret.as_str()), "{}", ended.stderr);
        }
        (ended.code, ended.stderr)
    };

    let (none, said) = code(&["stats"], None);
    assert_eq!(none, Some(4), "{said}");
    assert!(said.contains(&served.url) && said.contains("OUTBOX_TOKEN"), "{said}");
    assert_eq!(code(&["stats"], Some("obx_wrong")).0, Some(4));
    assert_eq!(code(&["stats"], Some("not a token")).0, Some(4));
    assert_eq!(code(&["stats"], Some(&viewer)).0, Some(0));
    let (forbidden, said) = code(&["dead", "discard", "dead-1", "--yes"], Some(&viewer));
    assert_eq!(forbidden, Some(4), "{said}");
    assert!(said.contains("has the role viewer; this takes operator"), "{said}");
    assert_eq!(code(&["dead", "discard", "dead-1", "--yes"], Some(&operator)).0, Some(0));
    assert_eq!(code(&["purge", "--older-than", "1h", "--yes"], Some(&operator)).0, Some(4));
    assert_eq!(code(&["purge", "--older-than", "1h", "--yes"], Some(&admin)).0, Some(0));

    // By the flag: as a reference, or as it is.
    std::fs::write(served.place.path().join("token"), format!("{viewer}\n")).expect("can be written");
    for token in ["${file:token}", &viewer] {
        let (by_flag, said) = code(&["event", "why", "dead-2", "--token", token], None);
        assert_eq!(by_flag, Some(0), "{said}");
    }
    let why = served.with_token(&["event", "why", "dead-2", "--token", "${file:token}"], None).stdout;
    assert!(why.contains("--token '${file:token}'"), "the command can be typed as it stands: {why}");
    let (absent, said) = code(&["stats", "--token", "${env:NO_SUCH_TOKEN}"], None);
    assert_eq!(absent, Some(4), "{said}");
    assert!(said.contains("--token: ${env:NO_SUCH_TOKEN}: the environment variable NO_SUCH_TOKEN is not set"), "{said}");

    // A viewer sees no payload, and is told so.
    let hidden = served.with_token(&["event", "show", "new-1", "--output", "json"], Some(&viewer));
    let row: serde_json::Value = serde_json::from_str(&hidden.stdout).expect("a document");
    assert_eq!((hidden.code, row["payload_hidden"].as_bool()), (Some(0), Some(true)), "{}", hidden.stdout);
    assert!(hidden.stderr.contains("does not show payloads"), "{}", hidden.stderr);
    assert_eq!(served.place.json(&["audit", "list", "--actor", "operator", "--output", "json"])[0]["action"], "discard");
}

/// What a command says of an address where this answers, whatever it is asked; and what it asked.
fn answered_by(scheme: &str, answer: &'static str) -> (Ended, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("{scheme}://{}", listener.local_addr().expect("it has one"));
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody asks");
        let mut asked = [0; 4096];
        let read = stream.read(&mut asked).expect("it asks");
        stream.write_all(answer.as_bytes()).expect("it reads");
        String::from_utf8_lossy(&asked[..read]).into_owned()
    });
    let place = Place::empty();
    let mut command = place.command(&["stats", "--url", &url]);
    command.env("OUTBOX_TOKEN", "obx_secret");
    let ended = Ended::of(command);
    (ended, answering.join().expect("it answers"))
}

#[test]
fn what_is_no_host_is_told_plainly_and_the_token_goes_nowhere_else() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it has one");
    let url = format!("http://{closed}");
    let place = Place::empty();
    let ended = place.run(&["stats", "--url", &url]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("the host at {url} cannot be reached")), "{}", ended.stderr);
    assert!(ended.stderr.contains("refused") && ended.stderr.contains("outbox run --listen"), "{}", ended.stderr);

    let (page, asked) = answered_by("http", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello");
    assert!(asked.contains("obx_secret"), "the token goes to the address that was given: {asked}");
    assert_eq!(page.code, Some(5), "{}", page.stderr);
    assert!(page.stderr.contains("answers 200 OK, but not as an outbox host does"), "{}", page.stderr);
    let (elsewhere, _) =
        answered_by("http", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(elsewhere.code, Some(5), "{}", elsewhere.stderr);
    assert!(elsewhere.stderr.contains("redirects are not followed"), "{}", elsewhere.stderr);
    let (other, _) = answered_by("http", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]");
    assert_eq!(other.code, Some(5), "{}", other.stderr);
    assert!(other.stderr.contains("host and program have different versions"), "{}", other.stderr);
    for ended in [page, elsewhere, other] {
        assert!(!ended.stderr.contains("obx_secret"), "{}", ended.stderr);
    }
    let (tls, asked) = answered_by("https", "HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(tls.code, Some(5), "{}", tls.stderr);
    assert!(!asked.contains("obx_secret") && tls.stderr.contains("cannot be reached"), "{}", tls.stderr);
    // The hints look for words of rustls and of hyper, which another version may change.
    assert!(tls.stderr.contains("it answers without TLS: write --url http://"), "{}", tls.stderr);
    let alert_of_tls = "\u{15}\u{3}\u{3}\0\u{2}\u{2}F";
    let (plain, _) = answered_by("http", alert_of_tls);
    assert_eq!(plain.code, Some(5), "{}", plain.stderr);
    assert!(plain.stderr.contains("if it has TLS, write --url https://"), "{}", plain.stderr);
}

/// The address of something that answers each request, by its number and its text, with a status and a body.
fn stranger(answer: impl Fn(usize, &str) -> (u16, serde_json::Value) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it has one"));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let (mut asked, mut bytes) = (String::new(), [0; 4096]);
            while !(asked.contains("\r\n\r\n") && (asked.starts_with("GET") || asked.ends_with('}'))) {
                let Ok(read @ 1..) = stream.read(&mut bytes) else { break };
                asked.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            let (status, body) = answer(number, &asked);
            let (kind, body) = (if status == 200 { "json" } else { "problem+json" }, body.to_string());
            let head =
                format!("HTTP/1.1 {status} x\r\nContent-Type: application/{kind}\r\nConnection: close\r\nContent-Length");
            let _ = stream.write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes());
        }
    });
    url
}

#[test]
fn a_host_that_comes_no_further_does_not_keep_a_replay_busy_for_ever() {
    // Always one event to replay, never replayed, and never the time for it.
    let url = stranger(|_, asked| {
        let is_dry = asked.contains(r#""dry_run":true"#);
        let body = serde_json::json!({
            "retried_now": 0, "left_waiting": 0, "replayed": u8::from(is_dry), "left_dead": 1, "out_of_time": !is_dry,
            "next": null, "dead_before": "2026-01-01T00:00:00Z", "dry_run": is_dry,
        });
        (200, body)
    });
    let ended = Place::empty().run(&["replay", "--yes", "--reason", "a test", "--url", &url]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("replayed no event within the time limit of a request"), "{}", ended.stderr);
}

#[test]
fn a_host_that_stops_in_the_middle_leaves_known_what_it_has_done() {
    let stopping = || (503, serde_json::json!({ "code": "stopping", "detail": "the host is stopping" }));
    let at = "2026-01-01T00:00:00.000000Z";
    let replaying = move |number: usize, _: &str| match number {
        0 | 1 => {
            let body = serde_json::json!({
                "retried_now": 1_500, "left_waiting": 0, "replayed": if number == 0 { 5_000 } else { 500 }, "left_dead": 9, "out_of_time": true, "next": 7,
                "dead_before": at, "dry_run": number == 0,
            });
            (200, body)
        }
        _ => stopping(),
    };
    let purging = move |number: usize, _: &str| match number {
        0 | 1 => {
            let body = serde_json::json!({
                "count": if number == 0 { 9_000 } else { 2_000 }, "first": null, "last": null, "left": 7_000, "blocking": 0,
                "finished_before": at, "older_than_seconds": 60.0, "dry_run": number == 0,
            });
            (200, body)
        }
        _ => stopping(),
    };

    let replay = Place::empty().run(&["replay", "--yes", "--reason", "a test", "--url", &stranger(replaying)]);
    let purge = Place::empty().run(&["purge", "--older-than", "1m", "--yes", "--url", &stranger(purging)]);

    for (ended, done) in [(replay, "2,000 events were brought back"), (purge, "2,000 events were deleted")] {
        assert_eq!(ended.code, Some(5), "{}", ended.stderr);
        assert!(ended.stderr.contains("the host is stopping"), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("{done} before this; the audit log has it")), "{}", ended.stderr);
    }
}
