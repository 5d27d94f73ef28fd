//! An endpoint for webhooks that answers as it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificate::certificate;

/// What came in one request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Which connection it came by, from 0.
    pub(crate) connection: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn path(&self) -> &str {
        self.head.split_whitespace().nth(1).unwrap_or_default()
    }
}

/// How an endpoint answers.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// With these bytes.
    Says(&'static str),
    /// With a head, and then one byte after the other for ever.
    Endless(&'static str),
    /// Not at all, until the endpoint is told another answer.
    Silent,
    /// By closing the connection.
    Closes,
}

pub(crate) const OK: Answer = Answer::Says("HTTP/1.1 204 No Content\r\n\r\n");

/// The answer to every request, and other answers for some paths.
struct Answers {
    usual: Answer,
    at: HashMap<&'static str, Answer>,
}

impl Answers {
    fn of(&self, request: &Request) -> Answer {
        self.at.get(request.path()).copied().unwrap_or(self.usual)
    }
}

/// An HTTP server of a test's own, gone with this value.
pub(crate) struct Endpoint {
    scheme: &'static str,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    answers: Arc<Mutex<Answers>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Endpoint {
    pub(crate) async fn that(answer: Answer) -> Self {
        Self::start(free().await, answer, None)
    }

    pub(crate) fn on(listener: TcpListener, answer: Answer) -> Self {
        Self::start(listener, answer, None)
    }

    /// With TLS.
    pub(crate) async fn encrypted(answer: Answer) -> Self {
        Self::start(free().await, answer, Some(certificate().acceptor()))
    }

    fn start(listener: TcpListener, answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let address = listener.local_addr().expect("bound");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let answers = Arc::new(Mutex::new(Answers { usual: answer, at: HashMap::new() }));
        let told = answers.clone();
        let accepting = tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (tls, seen, answers) = (tls.clone(), seen.clone(), answers.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, connection, answers, seen).await,
                        // One whose handshake fails is no connection.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, connection, answers, seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { scheme, address, requests, answers: told, accepting }
    }

    /// How it answers from now on.
    pub(crate) fn answers(&self, answer: Answer) {
        self.answers.lock().expect("no panic").usual = answer;
    }

    /// How it answers requests for this path from now on.
    pub(crate) fn answers_at(&self, path: &'static str, answer: Answer) {
        self.answers.lock().expect("no panic").at.insert(path, answer);
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/hooks", self.scheme, self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

async fn free() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port is free")
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    answers: Arc<Mutex<Answers>>,
    seen: Arc<Mutex<Vec<Request>>>,
) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let mut request =
            Request { head: String::from_utf8_lossy(&read[..end]).into_owned(), body: read.split_off(end), connection };
        let length: usize = request.header("content-length").unwrap_or("0").parse().expect("a number");
        while request.body.len() < length {
            if stream.read_buf(&mut request.body).await.unwrap_or(0) == 0 {
                return;
            }
        }
        read = request.body.split_off(length);
        seen.lock().expect("no panic").push(request.clone());
        let answer = loop {
            match answers.lock().expect("no panic").of(&request) {
                Answer::Silent => {}
                answer => break answer,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        match answer {
            Answer::Says(text) => {
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
            Answer::Endless(head) => {
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                return;
            }
            Answer::Silent | Answer::Closes => return,
        }
    }
}
