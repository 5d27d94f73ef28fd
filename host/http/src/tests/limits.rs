//! What is too large, too many or too slow.

use axum::body::Body;
use axum::http::Request;
use tower_service::Service as _;

use super::super::host::Host;
use super::super::peer::{CutOff, Leaving};
use super::*;

/// Longer than any test waits.
const AGES: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_a_payload_or_an_array_that_is_too_large_is_refused_whole() {
    let served = Served::start().await;
    let large = format!(r#"{{"event_type":"X","payload":"{}"}}"#, "a".repeat(3 << 20));
    let answer = served.post("/v1/events", &large).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too_large"));

    let payload = format!(r#"{{"event_type":"X","payload":"{}"}}"#, "a".repeat(1 << 20));
    let answer = served.post("/v1/events", &payload).await;
    assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (413, &Value::from("payload")));

    let many = format!("[{}]", vec!["{}"; 100_000].join(","));
    let answer = served.post("/v1/events", &many).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too_large"));
    assert!(answer.text.contains("100000 events; at most 1000"), "{}", answer.text);
    assert_eq!(served.get("/v1/events").await.json()["events"], Value::Array(Vec::new()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_or_headers_that_do_not_come_end_the_request() {
    let short = Duration::from_millis(200);
    let served = Served::with(HttpConfig { body_timeout: short, header_timeout: short, ..HttpConfig::default() }).await;

    let mut slow = served.connect().await;
    let head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = Answer::read(&mut slow).await;
    assert_eq!((answer.status, answer.problem().as_str()), (408, "body_timeout"));

    let mut form = served.connect().await;
    form.write_all(b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\nt")
        .await
        .unwrap();
    assert_eq!(Answer::read(&mut form).await.status, 408, "a form of the pages likewise");

    let mut loris = served.connect().await;
    loris.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A").await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, loris.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a connection whose headers never end is closed");
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_limit_whoever_has_been_idle_for_longest_makes_room() {
    let served = Served::with(HttpConfig { max_connections: 2, header_timeout: AGES, ..HttpConfig::default() }).await;
    let mut held = [served.connect().await, served.connect().await];
    for number in [0, 1, 0] {
        // Apart, so that their order is plain: the host notes what it has sent a moment after the client has it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        held[number].write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut told = Vec::new();
        while !told.ends_with(b"ok\n") {
            assert!(held[number].read_buf(&mut told).await.expect("it is served") > 0, "it was closed");
        }
    }
    let [mut first, mut second] = held;

    assert_eq!(served.get("/livez").await.status, 200);

    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, second.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the one that asked last of all is not the one that is closed");
    first.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    first.read_to_end(&mut rest).await.expect("it is served on");
    assert!(String::from_utf8_lossy(&rest).ends_with("ok\n"));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_its_request_byte_by_byte_makes_room_before_one_that_came_later() {
    let served = Served::with(HttpConfig { max_connections: 2, header_timeout: AGES, ..HttpConfig::default() }).await;
    let mut trickle = served.connect().await;
    trickle.write_all(b"GET /livez HTTP/1.1\r\nX-A: ").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut later = served.connect().await;
    later.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    let trickling = tokio::spawn(async move {
        while trickle.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });

    assert_eq!(served.get("/livez").await.status, 200);

    tokio::time::timeout(PATIENCE, trickling).await.expect("it was closed").expect("it did not panic");
    later.write_all(b"Host: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut later).await.status, 200, "it is served on");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_ask_again_and_again_and_come_back_when_they_are_closed_keep_nobody_away() {
    let served = Served::with(HttpConfig { max_connections: 2, ..HttpConfig::default() }).await;
    let address = served.connect().await.peer_addr().expect("it is connected");
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..20 {
        crowd.spawn(async move {
            loop {
                let mut client = tokio::net::TcpStream::connect(address).await.expect("the system has room for it");
                while client.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_ok() {
                    let mut answer = [0; 1_024];
                    if !matches!(client.read(&mut answer).await, Ok(1..)) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }

    // One in a second would be too few, with so many who wait. Who is closed asks again, as probes do.
    let probes = async {
        let mut answered = 0;
        while answered < 10 {
            let mut probe = served.connect().await;
            let mut answer = Vec::new();
            let _ = probe.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
            let _ = probe.read_to_end(&mut answer).await;
            answered += usize::from(answer.ends_with(b"ok\n"));
        }
    };
    tokio::time::timeout(PATIENCE, probes).await.expect("probes get in");

    crowd.shutdown().await;
    served.stop().await;
}

/// Says that it has begun, and goes on when it is told to.
struct Slow(std::sync::mpsc::SyncSender<()>, std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

impl outbox::writer::WriterHook for Slow {
    fn before_write(
        &self,
        events: Vec<outbox_event::Envelope>,
    ) -> Result<Vec<outbox_event::Envelope>, outbox::writer::HookError> {
        self.0.send(()).expect("the test waits");
        self.1.lock().expect("one at a time").recv_timeout(PATIENCE).expect("the test goes on");
        Ok(events)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_request_that_the_host_works_on_is_waited_for() {
    let (begun, has_begun) = std::sync::mpsc::sync_channel(1);
    let (go_on, goes_on) = std::sync::mpsc::sync_channel(1);
    let config = HttpConfig { max_connections: 1, ..HttpConfig::default() };
    let served = Served::of(config, |builder| builder.hook(Slow(begun, goes_on.into()))).await;
    let writing = async { served.post("/v1/events", r#"{"event_type":"X","payload":1}"#).await };
    let meanwhile = async {
        tokio::task::spawn_blocking(move || has_begun.recv_timeout(PATIENCE)).await.unwrap().expect("the hook is called");
        let mut waits = served.connect().await;
        waits.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut byte = [0; 1];
        assert!(tokio::time::timeout(Duration::from_millis(200), waits.peek(&mut byte)).await.is_err(), "it waits");
        go_on.send(()).expect("the hook waits");
        Answer::read(&mut waits).await
    };
    let (written, probe) = tokio::join!(writing, meanwhile);
    assert_eq!((written.status, probe.status), (201, 200), "{}", written.text);
    served.stop().await;
}

/// A client that asks for much and reads nothing.
async fn non_reader(served: &Served) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket can be made");
    socket.set_recv_buffer_size(4_096).expect("can be set");
    let mut client = socket.connect(served.server.address()).await.expect("it listens");
    // Many small requests at once: what is answered is larger than all that the operating system keeps for them.
    let many = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let _ = client.write_all(many.as_bytes()).await;
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hold_every_connection_keep_no_probe_away() {
    let config = HttpConfig {
        max_connections: 8,
        header_timeout: AGES,
        body_timeout: AGES,
        write_timeout: AGES,
        ..HttpConfig::default()
    };
    let served = Served::with(config).await;
    let mut slow = Vec::new();
    for number in 0..24 {
        if number % 4 == 0 {
            slow.push(non_reader(&served).await);
            continue;
        }
        let mut stream = served.connect().await;
        let begun: &[u8] = match number % 4 {
            1 => b"",
            2 => b"GET /livez HTTP/1.1\r\nX-A",
            _ => b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nt",
        };
        stream.write_all(begun).await.unwrap();
        slow.push(stream);
    }

    for path in ["/livez", "/readyz", "/metrics"] {
        let answer = tokio::time::timeout(PATIENCE, served.get(path)).await.expect("no client keeps a probe away");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    served.stop().await;
}

/// A client that follows the stream.
struct Follower {
    stream: TcpStream,
    told: String,
}

impl Follower {
    async fn of(served: &Served, headers: &str) -> Self {
        let mut stream = served.connect().await;
        let request = format!("GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("the request goes out");
        Self { stream, told: String::new() }
    }

    /// Reads until all that was told fulfils a condition; false when the stream ended before.
    async fn reads_until(&mut self, wanted: impl Fn(&str) -> bool) -> bool {
        let reading = async {
            while !wanted(&self.told) {
                let mut bytes = [0; 4_096];
                let length = self.stream.read(&mut bytes).await.unwrap_or(0);
                if length == 0 {
                    return false;
                }
                self.told.push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
            true
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("it goes on, or ends")
    }

    /// Whether the server ended the stream in order: a connection that is broken off has no last chunk.
    fn was_ended(&self) -> bool {
        self.told.ends_with("\r\n0\r\n\r\n")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_tells_the_counts_has_a_limit_and_ends_with_the_server() {
    let served = Served::with(HttpConfig { max_streams: 1, ..HttpConfig::default() }).await;
    let mut follower = Follower::of(&served, "").await;
    let one_is_whole = |told: &str| told.split_once("event: stats").is_some_and(|(_, rest)| rest.contains("\n\n"));
    assert!(follower.reads_until(one_is_whole).await, "{}", follower.told);
    assert!(follower.told.contains("text/event-stream"), "{}", follower.told);
    for part in ["\"in_flight_here\":0", "\"mode\":\"single_node\"", "\"done\":0"] {
        assert!(follower.told.contains(part), "{part}: {}", follower.told);
    }

    let second = served.get("/v1/stream").await;
    assert_eq!((second.status, second.problem().as_str(), second.header("retry-after")), (503, "busy", "1"));
    let Served { server, outbox, .. } = served;
    let stopping = tokio::spawn(server.shutdown());
    assert!(!follower.reads_until(|_| false).await);
    assert!(follower.was_ended(), "{}", follower.told);
    stopping.await.expect("it stops");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_ends_when_the_session_does_that_it_was_asked_for_by() {
    let (served, [viewer, ..]) = Served::with_tokens().await;
    let cookie = served.log_in(&viewer).await.expect("let in");
    let mut follower = Follower::of(&served, &cookie).await;
    assert!(follower.reads_until(|told| told.contains("event: stats")).await, "{}", follower.told);

    assert_eq!(served.send("POST /logout", &cookie, b"").await.status, 303);

    assert!(!follower.reads_until(|_| false).await);
    assert!(follower.was_ended(), "{}", follower.told);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_reads_no_answer_loses_the_place() {
    let config = HttpConfig { write_timeout: Duration::from_millis(200), ..HttpConfig::default() };
    let served = Served::with(config).await;
    let mut client = non_reader(&served).await;

    // What is sent to a connection that was closed fails; one that is open takes some and then waits.
    let sending = async { while client.write_all(&[b'\n'; 4_096]).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, sending).await.expect("the connection is closed");

    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("the connection is closed");
    let answered = String::from_utf8_lossy(&rest).matches("HTTP/1.1 200 OK").count();
    assert!(answered < 200, "the server did not go on writing");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_large_rows_is_shorter_and_nothing_is_left_out() {
    let served = Served::start().await;
    let large = "h".repeat(200_000);
    for number in 0..20 {
        let body = format!(
            r#"{{"event_id":"e{number:02}","event_type":"OrderPlaced","aggregate_type":"Order","payload":1,"headers":{{"h":"{large}"}}}}"#
        );
        assert_eq!(served.post("/v1/events", &body).await.status, 201);
    }
    for order in ["", "&newest_first=true"] {
        let (mut ids, mut after, mut largest) = (Vec::new(), String::new(), 0);
        loop {
            let page = served.get(&format!("/v1/events?limit=200{order}{after}")).await;
            largest = largest.max(page.text.len());
            let page = page.json();
            let rows = page["events"].as_array().expect("rows").clone();
            assert!(rows.iter().all(|row| row["headers"]["h"] == *large), "nothing is cut");
            ids.extend(rows.iter().map(|row| row["event_id"].as_str().expect("an id").to_owned()));
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert!(largest < 2 << 20, "{largest} bytes in one page");
        let mut wanted: Vec<String> = (0..20).map(|number| format!("e{number:02}")).collect();
        if !order.is_empty() {
            wanted.reverse();
        }
        assert_eq!(ids, wanted, "{order}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_viewers_look_there_is_a_place_for_an_operator() {
    let served = Served::start().await;
    let host = Host::new(&served.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let viewing = host.read_place(Role::Viewer).await.expect("free");
    let (another, operating) = tokio::join!(host.read_place(Role::Viewer), host.read_place(Role::Operator));
    assert!(another.is_err() && operating.is_ok(), "{another:?} {operating:?}");
    drop(viewing);
    host.read_place(Role::Viewer).await.expect("free again");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_many_events_waits_for_another_one_to_begin_but_not_for_ever_nor_for_a_client_that_left() {
    let served = Served::start().await;
    let host = Host::new(&served.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let post = async |path: &str, body: String| {
        let request = Request::post(path).header("content-type", "application/json").body(Body::from(body)).unwrap();
        crate::router::routes(host.clone()).call(request).await.expect("a router never fails").status().as_u16()
    };
    let now = served.outbox.store().now().await.expect("tells the time");
    let both = async || {
        let replay = serde_json::json!({ "dead_before": now, "expected_count": 0 }).to_string();
        let purge = serde_json::json!({ "finished_before": now, "expected_count": 0 }).to_string();
        tokio::join!(post("/v1/dead/replay", replay), post("/v1/purge", purge))
    };
    let first = host.confirming(&mut CutOff::default()).await.expect("nobody else");

    assert_eq!(both().await, (503, 503));
    let (client, leaving) = Leaving::new();
    drop(client);
    let left = host.confirming(&mut CutOff::of(leaving)).await.map(drop).expect_err("its client has left");
    assert_eq!(left.detail(), "the host is stopping, or the client has gone; nothing was done");
    drop(first);
    assert_eq!(both().await, (200, 200));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_into_the_database_beside_others_waits_and_probes_do_not() {
    let served = Served::start().await;
    let host = Host::new(&served.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let send = async |request: axum::http::request::Builder, body: &'static str| {
        let request = request.header("content-type", "application/json").body(Body::from(body)).unwrap();
        crate::router::routes(host.clone()).call(request).await.expect("a router never fails").status().as_u16()
    };
    let status = async |path: &str| send(Request::get(path), "").await;
    let place = async || host.read_place(Role::Operator).await.expect("free");
    let held = (place().await, place().await);

    assert_eq!(status("/v1/events").await, 503, "statements of clients that went away count as well");
    assert_eq!(status("/events").await, 503);
    let dry_run = async |path: &str| send(Request::post(path), r#"{"dry_run":true}"#).await;
    let counting = tokio::join!(dry_run("/v1/purge"), dry_run("/v1/replay"), dry_run("/v1/dead/replay"));
    assert_eq!(counting, (503, 503, 503), "what an operator counts is a look too");
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(status(path).await, 200, "{path}");
    }

    drop(held);
    assert_eq!(status("/v1/events").await, 200);
    for path in ["/v1/purge", "/v1/replay", "/v1/dead/replay"] {
        assert_eq!(dry_run(path).await, 200, "{path}");
    }
    served.stop().await;
}
