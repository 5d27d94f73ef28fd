//! The HTTP API of a host, from its configuration to its end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection};

use crate::home::Home;
use crate::program::{Host, PATIENCE, Place, run};

/// Where a host says that it listens: `127.0.0.1:40123`.
pub(crate) fn address(host: &mut Host) -> String {
    let mut address = String::new();
    let found = std::cell::RefCell::new(&mut address);
    host.wait_until_it_said("it says where it listens", |line| match line.strip_prefix("listening on http://") {
        Some(at) => {
            **found.borrow_mut() = at.to_owned();
            true
        }
        None => false,
    });
    address
}

/// Sends a request; the whole answer.
pub(crate) fn ask(address: &str, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("can be set");
    let length = body.len();
    let head =
        format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// An event that the order mailer sends a mail for.
const ORDER: &str = r#"{"event_type":"OrderPlaced","aggregate_type":"Order","aggregate_id":"42","payload":{"order_id":1,"total":2.5,"customer":"ada@example.com"}}"#;

/// Asks again and again until the answer is right: what is shown may be a second old.
fn ask_until(fact: &str, address: &str, request: &str, is_right: impl Fn(&str) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = ask(address, request, "", "");
        if is_right(&answer) {
            return;
        }
        assert!(Instant::now() < until, "within {PATIENCE:?}: {fact}; {request}: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A host that listens on a free port, with these arguments.
pub(crate) fn listening(place: &Place, arguments: &[&str]) -> (Host, String) {
    place.plugin("order-mailer");
    let all = [&["run", "--plugins", "plugins", "--listen", "127.0.0.1:0"], arguments].concat();
    let mut host = Host::of(place.command(&all));
    let address = address(&mut host);
    host.wait_until_it_said("it is ready", |line| line == "ready");
    (host, address)
}

#[test]
fn a_host_says_where_it_listens_before_it_is_ready_and_delivers_what_is_posted() {
    let place = Place::migrated();
    let (mut host, address) = listening(&place, &[]);

    let answer = ask(&address, "POST /v1/events", "Content-Type: application/json\r\n", ORDER);

    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    host.wait_for_mails(1);
    ask_until("the plugin is shown", &address, "GET /v1/plugins", |answer| answer.contains("\"name\":\"order-mailer\""));
    host.signal("TERM");
    let (status, lines) = host.end();
    assert!(status.success(), "{lines:#?}");
    let place_of =
        |wanted: &str| lines.iter().position(|line| line.starts_with(wanted)).unwrap_or_else(|| panic!("{wanted}: {lines:#?}"));
    assert!(place_of("listening on http://127.0.0.1:") < place_of("ready"), "{lines:#?}");
}

#[test]
fn a_host_whose_file_was_moved_takes_no_event_says_so_on_its_pages_and_goes_on_when_it_is_back() {
    let place = Place::migrated();
    let (mut host, address) = listening(&place, &[]);
    let (file, elsewhere) = (place.path().join("outbox.db"), place.path().join("elsewhere.db"));
    let post = || ask(&address, "POST /v1/events", "Content-Type: application/json\r\n", r#"{"event_type":"A","payload":1}"#);
    std::fs::rename(&file, &elsewhere).expect("moved");

    let answer = post();

    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("database_unavailable"), "{answer}");
    assert!(ask(&address, "GET /v1/stats", "", "").starts_with("HTTP/1.1 503 "), "nor are rows shown that nobody else sees");
    ask_until("the page tells of the outage", &address, "GET /", |page| {
        // Which of the two depends on whether the page had counted the table before.
        let is_told = ["The database does not answer; what you see is from", "The database has not answered since"];
        is_told.iter().any(|told| page.contains(told)) && page.contains("was moved, deleted or replaced")
    });
    std::fs::rename(&elsewhere, &file).expect("put back");
    assert!(post().starts_with("HTTP/1.1 201 "));
    let answer = ask(&address, "POST /v1/events", "Content-Type: application/json\r\n", ORDER);
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    host.wait_for_mails(1);
    place.wait_for("done", 1);
    let stats = place.json(&["stats", "--output", "json"]);
    let written: u64 = ["new", "parked", "dead", "done"].iter().filter_map(|name| stats[*name].as_u64()).sum();
    assert_eq!(written, 2, "the event that was refused is not there: {stats}");
}

/// As during `VACUUM FULL` of the audit log and a change of the table that lets reads pass.
#[test]
fn the_pages_show_findings_while_the_tables_are_locked() {
    let place = Place::on(Home::on_postgres());
    let (_host, address) = listening(&place, &[]);
    place.ok(&["route", "pause", "Order/OrderPlaced"]);

    run(async {
        let mut other = PgConnection::connect(place.url()).await.expect("it answers");
        let locks = "BEGIN; LOCK TABLE outbox_event_audit; LOCK TABLE outbox_event IN EXCLUSIVE MODE";
        other.execute(locks).await.expect("locks them");
        // No page was asked for before, so this one needs a snapshot of the locked tables.
        ask_until("it names the pause", &address, "GET /", |page| page.contains("Route Order/OrderPlaced was paused"));
        other.execute("ROLLBACK").await.expect("unlocks them");
    });
}

#[test]
fn a_host_that_was_not_told_to_listen_does_not() {
    let place = Place::migrated();
    let host = place.host(&[]);
    host.signal("TERM");
    let (_, lines) = host.end();
    assert!(!lines.iter().any(|line| line.starts_with("listening on")), "{lines:#?}");
}

#[test]
fn a_port_that_is_taken_is_told_plainly() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = other.local_addr().expect("it has one").to_string();

    let ended = place.run(&["run", "--plugins", "plugins", "--listen", &taken]);

    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let said = format!("the HTTP API cannot listen on {taken}: another program listens there");
    assert!(ended.stderr.contains(&said) && ended.stderr.contains("--listen"), "{}", ended.stderr);
    assert!(!ended.stderr.lines().any(|line| line == "ready"), "{}", ended.stderr);
}

#[test]
fn an_address_that_others_can_reach_is_refused_without_a_token() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let ended = place.run(&["run", "--plugins", "plugins", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("--listen: http.listen is 0.0.0.0:0, which other machines can reach"), "{}", ended.stderr);
    let ended = place.run(&["run", "--plugins", "plugins", "--listen", "8080"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("`8080` is not an address to listen on"), "{}", ended.stderr);
}

#[test]
fn the_lines_that_token_new_prints_let_its_token_in() {
    let place = Place::migrated();
    let made = place.run(&["token", "new", "--name", "deploy \"1\"", "--role", "operator", "--expires-in", "1h"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let token = made.stdout.trim();
    assert!(token.starts_with("obx_") && !made.stderr.contains(token), "{token}: {}", made.stderr);
    let (_, lines) = made.stderr.split_once("\n\n").expect("the lines follow");
    std::fs::write(place.path().join("outbox.toml"), lines).expect("can be written");
    let (host, address) = listening(&place, &[]);

    assert!(ask(&address, "GET /v1/stats", "", "").starts_with("HTTP/1.1 401 "));
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert!(ask(&address, "GET /v1/stats", &bearer, "").starts_with("HTTP/1.1 200 "));
    let paused = ask(&address, "POST /v1/routes/Order/OrderPlaced/pause", &bearer, "");
    assert!(paused.starts_with("HTTP/1.1 200 "), "{paused}");
    let audit = place.json(&["audit", "list", "--output", "json"]);
    assert_eq!(
        (&audit[0]["actor"], &audit[0]["action"]),
        (&"deploy \"1\"".into(), &"pause".into()),
        "the audit knows the token"
    );
    drop(host);

    let wrong = lines.replace("sha256 = \"", "sha256 = \"obx_");
    std::fs::write(place.path().join("outbox.toml"), wrong).expect("can be written");
    let ended = place.run(&["config", "check"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("not a SHA-256"), "{}", ended.stderr);
}

#[test]
fn two_that_try_it_out_at_once_each_have_a_port() {
    let (first, second) = (Place::empty(), Place::empty());
    let start = |place: &Place| {
        place.plugin("order-mailer");
        let mut host = Host::of(place.command(&["dev", "--plugins", "plugins"]));
        let address = address(&mut host);
        (host, address)
    };
    let ((_one, at), (_two, other)) = (start(&first), start(&second));
    assert_ne!(at, other);
    for address in [at, other] {
        assert!(ask(&address, "GET /livez", "", "").starts_with("HTTP/1.1 200 "), "{address}");
    }
}

#[test]
fn a_host_that_waits_for_its_database_lives_and_is_not_ready() {
    let place = Place::at("postgres://nobody@127.0.0.1:1/none");
    place.plugin("order-mailer");
    let mut command = place.command(&["run", "--plugins", "plugins", "--listen", "127.0.0.1:0"]);
    command.env("OUTBOX_LOG", "info");
    let mut host = Host::of(command);
    let address = address(&mut host);
    assert!(ask(&address, "GET /livez", "", "").starts_with("HTTP/1.1 200 "));
    let answer = ask(&address, "GET /v1/stats", "", "");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"code\":\"starting\""), "{answer}");
    host.signal("TERM");
    let (status, _) = host.end();
    assert_eq!(status.code(), Some(130));
}
