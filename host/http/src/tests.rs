//! The API over a real socket, in front of a real SQLite store.

mod dead;
mod events;
mod limits;
mod monitor;
mod openapi;
mod purge;
mod reading;
mod security;
mod why;

use std::sync::Arc;
use std::time::Duration;

use outbox::{Outbox, OutboxBuilder};
use outbox_event::{DispatchResult, Event, Failure};
use outbox_store::sqlite::{SqliteOptions, SqliteStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{HttpConfig, Listen, Role, Server, Token};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host with its API; the listener of `Order/OrderPlaced` is done with everything, that of `Order/Broken` with nothing.
struct Served {
    outbox: Outbox<SqliteStore>,
    server: Server,
    directory: TempDir,
}

/// What came back.
struct Answer {
    status: u16,
    /// Lower-case names.
    headers: Vec<(String, String)>,
    text: String,
}

impl Served {
    async fn start() -> Self {
        Self::with(HttpConfig::default()).await
    }

    async fn with(config: HttpConfig) -> Self {
        Self::of(config, |builder| builder).await
    }

    /// With something beside its listeners.
    async fn of(config: HttpConfig, add: impl FnOnce(OutboxBuilder<SqliteStore>) -> OutboxBuilder<SqliteStore>) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let options = SqliteOptions::new(directory.path().join("outbox.db")).create(true);
        let store = SqliteStore::open_with(options).await.expect("opens");
        let done = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
        let broken = |_: Arc<Event>| async { Err::<DispatchResult, _>(Failure::unrecoverable("it is broken")) };
        let builder = Outbox::single_node(store).migrate(true).listener(("Order", "OrderPlaced"), done);
        let outbox = add(builder.listener(("Order", "Broken"), broken)).start().await.expect("starts");
        let config = HttpConfig { listen: Listen::At(([127, 0, 0, 1], 0).into()), ..config };
        let server = Server::bind(config).await.expect("binds").expect("is on");
        server.serve(&outbox);
        Self { outbox, server, directory }
    }

    /// With a token of each role, and their texts: viewer, operator, admin.
    async fn with_tokens() -> (Self, [String; 3]) {
        let made = [Role::Viewer, Role::Operator, Role::Admin].map(|role| Token::generate(role.as_str(), role, None));
        let tokens = made.iter().map(|(_, token)| token.clone()).collect();
        let served = Self::with(HttpConfig { tokens, ..HttpConfig::default() }).await;
        (served, made.map(|(text, _)| text))
    }

    /// Logs in by the form of the pages; the cookie of the session, as a header line.
    async fn log_in(&self, token: &str) -> Option<String> {
        let form = format!("token={token}&back=");
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        let answer = self.send("POST /login", headers, form.as_bytes()).await;
        let cookie = answer.header("set-cookie").split(';').next().filter(|cookie| !cookie.is_empty())?;
        Some(format!("Cookie: {cookie}\r\n"))
    }

    /// Stops; the directory of the database, which is deleted when it is dropped.
    async fn stop(self) -> TempDir {
        self.server.shutdown().await;
        self.outbox.shutdown().await;
        self.directory
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.address()).await.expect("it listens")
    }

    /// Sends a request with these header lines, each with its end.
    async fn send(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        let host = if headers.lines().any(|header| header.starts_with("Host:")) { "" } else { "Host: localhost\r\n" };
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n{length}{headers}\r\n");
        stream.write_all(head.as_bytes()).await.expect("it takes the head");
        // A server that refuses early may not take all of it.
        let _ = stream.write_all(body).await;
        Answer::read(&mut stream).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), "", b"").await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(&format!("POST {path}"), "Content-Type: application/json\r\n", body.as_bytes()).await
    }

    /// Looks at an event until it has this status.
    async fn wait_for(&self, id: &str, status: &str) {
        let path = format!("/v1/events/{id}");
        eventually(&format!("the event {id} is {status}"), async || self.get(&path).await.json()["status"] == status).await;
    }

    /// Writes events that die at once, one for each id.
    async fn dead(&self, ids: &[&str]) {
        for id in ids {
            let body = format!(
                r#"{{"event_id":"{id}","event_type":"Broken","aggregate_type":"Order","payload":{{"secret":"the payload of {id}"}}}}"#
            );
            assert_eq!(self.post("/v1/events", &body).await.status, 201);
            self.wait_for(id, "DEAD").await;
        }
    }
}

/// Looks again and again until `holds`, as that of the test support, which depends on this crate.
async fn eventually(fact: &str, holds: impl AsyncFn() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {fact}"));
}

impl Answer {
    async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // The connection may be reset after the answer, when the request was not read to its end.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an answer, or the end");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status line");
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self { status, headers: lines.filter_map(pair).collect(), text: body.to_owned() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of a problem, which must be whole.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        assert!(["title", "detail", "type"].iter().all(|field| problem[field].is_string()), "{problem}");
        problem["code"].as_str().expect("a code").to_owned()
    }
}

/// A request of a client that may leave before it is answered.
fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
