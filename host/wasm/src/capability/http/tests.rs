//! Requests of a plugin against servers of the tests' own.

mod granted;
mod lookups;
mod server;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use outbox_event::{Envelope, Event};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use self::server::Server;
use super::lookups::{Lookups, Resolver};
use super::network::{Network, tls};
use super::{HttpClient, RefusalKind};
use crate::bindings::outbox::listener::http::{Host, Request, Response};
use crate::bindings::outbox::listener::types::Refusal;
use crate::capability::{Grants, HostState, Identity};
use crate::manifest::{Http, Limits};
use crate::shares::MemoryBudget;

/// Answers with the next of these lists, and with the last one from then on.
struct Answers(Mutex<VecDeque<Vec<&'static str>>>, AtomicUsize);

impl Resolver for Answers {
    fn resolve(&self, _: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        let addresses = answer.unwrap().into_iter().map(|address| SocketAddr::new(address.parse().unwrap(), port)).collect();
        Box::pin(async move { Ok(addresses) })
    }
}

fn resolver(answers: &[&[&'static str]]) -> Arc<Answers> {
    Arc::new(Answers(Mutex::new(answers.iter().map(|list| list.to_vec()).collect()), AtomicUsize::new(0)))
}

/// A guest's side of the interface, with a grant as an operator writes it; `PORT` stands for the server's.
fn guest(grant: &str, server: &Server, resolver: Option<Arc<Answers>>) -> HostState {
    let client = match resolver {
        Some(resolver) => client(grant, server, &Lookups::new(resolver)),
        None => Network::new(None).client(&granted(grant, server)).unwrap(),
    };
    guest_with(client)
}

fn granted(grant: &str, server: &Server) -> Http {
    toml::from_str(&grant.replace("PORT", &server.port.to_string())).unwrap()
}

fn client(grant: &str, server: &Server, lookups: &Lookups) -> Arc<HttpClient> {
    Arc::new(HttpClient::new(granted(grant, server), &tls(None).unwrap(), lookups))
}

fn guest_with(client: Arc<HttpClient>) -> HostState {
    let grants = Grants { http: Some(client), ..Grants::default() };
    let identity = Arc::new(Identity::new("mailer".to_owned(), "0123456789ab".to_owned(), grants));
    state_of(&identity)
}

fn state_of(identity: &Arc<Identity>) -> HostState {
    HostState::new(&MemoryBudget::new(1 << 20).share(&identity.name), identity, &Limits::default())
}

fn request(url: impl Into<String>) -> Request {
    Request {
        method: "GET".to_owned(),
        url: url.into(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout_ms: None,
        attributes: Vec::new(),
    }
}

async fn sent(guest: &mut HostState, request: Request) -> Result<Response, Refusal> {
    guest.send(request).await.expect("within the budget of the call")
}

async fn refused(guest: &mut HostState, request: Request) -> (RefusalKind, String) {
    let what = format!("{} {}", request.method, request.url);
    match sent(guest, request).await {
        Ok(response) => panic!("{what}: {}", response.status),
        Err(refusal) => (refusal.kind, refusal.message),
    }
}

const LOCAL: &str = "allow = ['http://localhost:PORT', 'http://127.0.0.1:PORT']\nallow_private = ['127.0.0.0/8', '::1']";

#[tokio::test]
async fn a_request_arrives_with_what_the_host_adds_and_its_response_comes_back() {
    let server = Server::echoing().await;
    let mut guest = guest(LOCAL, &server, None);
    let event = Arc::new(Event::of(Envelope::new("OrderPlaced").json(&1).unwrap()).build());
    guest.begin(Some(event.clone()), Instant::now() + Duration::from_secs(5));
    let post = Request {
        method: "POST".to_owned(),
        headers: vec![("X-One".to_owned(), "1".to_owned()), ("x-one".to_owned(), "2".to_owned())],
        body: b"hello".to_vec(),
        ..request(server.url("localhost") + "?a=b")
    };
    let response = sent(&mut guest, post).await.unwrap();
    assert_eq!((response.status, response.headers[0].0.as_str()), (200, "content-length"));
    let asked = String::from_utf8(response.body).unwrap();
    assert!(asked.starts_with("POST /path?a=b HTTP/1.1\r\n") && asked.ends_with("\r\n\r\nhello"), "{asked}");
    for line in [
        format!("host: localhost:{}", server.port),
        "x-one: 1".to_owned(),
        "x-one: 2".to_owned(),
        "content-length: 5".to_owned(),
        format!("idempotency-key: {}.1", event.id()),
        format!("user-agent: outbox/{} (mailer)", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(asked.lines().any(|asked| asked == line), "{line} is missing in {asked}");
    }

    let own = Request { headers: vec![("Idempotency-Key".to_owned(), "mine".to_owned())], ..request(server.url("localhost")) };
    let asked = String::from_utf8(sent(&mut guest, own).await.unwrap().body).unwrap();
    assert!(asked.contains("idempotency-key: mine\r\n") && !asked.contains(event.id().as_str()), "{asked}");
    let third = String::from_utf8(sent(&mut guest, request(server.url("localhost"))).await.unwrap().body).unwrap();
    assert!(third.contains(&format!("idempotency-key: {}.3\r\n", event.id())), "{third}");
    assert_eq!(server.connections.load(Ordering::Relaxed), 1, "the connection is used again");

    guest.begin(Some(event.clone()), Instant::now() + Duration::from_secs(5));
    let again = String::from_utf8(sent(&mut guest, request(server.url("localhost"))).await.unwrap().body).unwrap();
    assert!(again.contains(&format!("idempotency-key: {}.1\r\n", event.id())), "the next delivery counts from one: {again}");
}

#[tokio::test]
async fn one_origin_has_one_pool_of_connections_however_it_is_spelt() {
    let server = Server::echoing().await;
    let mut guest = guest(LOCAL, &server, None);
    for zeros in ["", "0", "00", "000"] {
        for host in ["localhost", "LOCALHOST", "LocalHost"] {
            let port = format!("{zeros}{}", server.port);
            // A port of more than five digits is no port for some, which is fine too.
            if let Ok(response) = sent(&mut guest, request(format!("http://{host}:{port}/"))).await {
                let asked = String::from_utf8(response.body).unwrap();
                assert!(asked.contains(&format!("host: localhost:{}\r\n", server.port)), "{asked}");
            }
        }
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_plugin_has_no_more_connections_than_it_may_have_requests_and_some_spare_ones() {
    let server = Server::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    // Each name has connections of its own, which are kept for a while.
    let granted = "allow = ['http://*.example.org:PORT']\nallow_private = ['127.0.0.1']\nconcurrency = 1\ntimeout = '300ms'";
    let mut guest = guest(granted, &server, Some(resolver(&[&["127.0.0.1"]])));
    let mut refusals = 0;
    for number in 0..80 {
        let url = format!("http://n{number}.example.org:{}/", server.port);
        refusals += usize::from(sent(&mut guest, request(url)).await.is_err());
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 65);
    assert_eq!(refusals, 15);
}

#[tokio::test]
async fn slow_endless_and_large_responses_end_at_their_bounds() {
    let bounded = format!("{LOCAL}\ntimeout = '300ms'\nmax_response = '64KiB'");
    let silent = Server::start(|_, stream| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Some(stream)
    })
    .await;
    let (kind, message) = refused(&mut guest(&bounded, &silent, None), request(silent.url("localhost"))).await;
    assert_eq!((kind, message.as_str()), (RefusalKind::Unavailable, "the response took longer than 300ms"));
    let hurried = Request { timeout_ms: Some(50), ..request(silent.url("localhost")) };
    assert_eq!(refused(&mut guest(&bounded, &silent, None), hurried).await.1, "the response took longer than 50ms");

    let dripping = Server::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.ok()?;
        loop {
            stream.write_all(b"1\r\nx\r\n").await.ok()?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let (kind, message) = refused(&mut guest(&bounded, &dripping, None), request(dripping.url("localhost"))).await;
    assert_eq!((kind, message.as_str()), (RefusalKind::Unavailable, "the response took longer than 300ms"));

    let endless = Server::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
        loop {
            stream.write_all(&[b'x'; 8_192]).await.ok()?;
        }
    })
    .await;
    let (kind, message) = refused(&mut guest(&bounded, &endless, None), request(endless.url("localhost"))).await;
    assert_eq!((kind, message.as_str()), (RefusalKind::OverLimit, "the response has more than 65536 bytes"));

    let boasting = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n").await;
    assert_eq!(
        refused(&mut guest(&bounded, &boasting, None), request(boasting.url("localhost"))).await.0,
        RefusalKind::OverLimit
    );
}

#[tokio::test]
async fn a_head_without_end_and_answers_that_are_not_http_are_failures_of_the_other_side() {
    let many = Server::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.ok()?;
        for number in 0..40_000 {
            stream.write_all(format!("x-{number}: y\r\n").as_bytes()).await.ok()?;
        }
        stream.write_all(b"\r\n").await.ok()?;
        Some(stream)
    })
    .await;
    let one = Server::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await.ok()?;
        loop {
            stream.write_all(&[b'x'; 8_192]).await.ok()?;
        }
    })
    .await;
    let other = Server::answering("SSH-2.0-OpenSSH_9.2\r\n").await;
    let two_lengths = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 5\r\n\r\nxxxxx").await;
    for server in [many, one, other, two_lengths] {
        let (kind, message) = refused(&mut guest(LOCAL, &server, None), request(server.url("localhost"))).await;
        assert_eq!(kind, RefusalKind::Unavailable, "{message}");
    }
}

#[tokio::test]
async fn a_server_that_sends_informational_responses_endlessly_is_cut_off() {
    let server = Server::start(|_, mut stream| async move {
        let responses = b"HTTP/1.1 103 Early\r\nlink: a\r\n\r\n".repeat(1 << 10);
        loop {
            stream.write_all(&responses).await.ok()?;
        }
    })
    .await;
    let mut guest = guest(&format!("{LOCAL}\ntimeout = '60s'"), &server, None);

    let (kind, message) = refused(&mut guest, request(server.url("localhost"))).await;

    assert_eq!(kind, RefusalKind::Unavailable);
    assert!(message.contains("sent more than 2112 KiB"), "{message}");
}

#[tokio::test]
async fn a_compressed_body_comes_as_it_is() {
    let gzip = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x0bab";
    let server = Server::answering(gzip).await;
    let response = sent(&mut guest(LOCAL, &server, None), request(server.url("localhost"))).await.unwrap();
    assert_eq!(response.body, b"\x1f\x0bab");
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_with_the_rule() {
    let server = Server::echoing().await;
    let mut guest = guest(LOCAL, &server, None);
    let url = server.url("localhost");
    let headers = |name: &str, value: &str| Request { headers: vec![(name.to_owned(), value.to_owned())], ..request(&url) };
    for (given, rule) in [
        (Request { method: "G ET".to_owned(), ..request(&url) }, "`G ET` is not a method"),
        (Request { method: "CONNECT".to_owned(), ..request(&url) }, "`CONNECT` is not a method"),
        (headers("host", "evil.example"), "the header `host` is set by the host"),
        (headers("Content-Length", "3"), "the header `content-length` is set by the host"),
        (headers("transfer-encoding", "chunked"), "the header `transfer-encoding` is set by the host"),
        (headers("x", "a\r\nb: c"), "the header `x` has a value with control characters"),
        (headers("a b", "c"), "`a b` is not the name of a header"),
        (headers("x", &"y".repeat(20_000)), "at most 100 of 16384 bytes"),
        (Request { headers: vec![("x".to_owned(), String::new()); 101], ..request(&url) }, "it has 101 headers"),
        (request(format!("{url}/{}", "x".repeat(9_000))), "its URL has"),
        (Request { attributes: vec![("proxy".to_owned(), String::new())], ..request(&url) }, "the attribute `proxy`"),
        (request(url.replace("http", "ws")), "the scheme `ws` is neither"),
    ] {
        let (kind, message) = refused(&mut guest, given).await;
        assert_eq!(kind, RefusalKind::Invalid, "{message}");
        assert!(message.contains(rule), "{rule}: {message}");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn requests_beyond_the_bound_wait_for_one_to_end_and_a_call_that_is_cut_off_gives_its_place_back() {
    let server = Server::start(|request, mut stream| async move {
        if request.starts_with("GET /path?slow") {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.ok()?;
        Some(stream)
    })
    .await;
    let mut slow = guest(&format!("{LOCAL}\nconcurrency = 1\ntimeout = '2s'"), &server, None);
    let mut beside = state_of(&slow.identity);
    let waiting = slow.send(request(server.url("localhost") + "?slow"));
    let hurried = Request { timeout_ms: Some(100), ..request(server.url("localhost")) };
    let (waited, (kind, message)) = tokio::join!(waiting, refused(&mut beside, hurried));
    assert_eq!(kind, RefusalKind::Unavailable);
    assert!(message.contains("1 requests of this plugin are under way"), "{message}");
    assert!(waited.unwrap().is_err());

    let cut = tokio::time::timeout(Duration::from_millis(50), slow.send(request(server.url("localhost") + "?slow"))).await;
    assert!(cut.is_err());
    assert_eq!(sent(&mut beside, request(server.url("localhost"))).await.unwrap().status, 204);
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server { port: listener.local_addr().unwrap().port(), connections: Arc::default() };
    drop(listener);
    let (kind, message) = refused(&mut guest(LOCAL, &server, None), request(server.url("127.0.0.1"))).await;
    assert_eq!(kind, RefusalKind::Unavailable);
    assert!(message.starts_with("no connection to 127.0.0.1: Connection refused"), "{message}");
}
