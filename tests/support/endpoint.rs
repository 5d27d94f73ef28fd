//! An HTTP server of a test's own, for what plugins ask of one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use crate::PATIENCE;

/// A server on loopback that answers every request with a status, and keeps what was asked.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    requests: mpsc::Receiver<String>,
}

impl Endpoint {
    /// A server that answers with these statuses in turn, and with the last of them from then on.
    ///
    /// # Panics
    /// Without a status, or when no port is free.
    #[must_use]
    pub fn answering(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let last = *statuses.last().expect("a status");
        let statuses = statuses.to_vec();
        let mut statuses = statuses.into_iter();
        let (sender, requests) = mpsc::channel();
        // It ends with the test's process, or with the first request that nobody wants to see.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(request) = answered(stream, || statuses.next().unwrap_or(last)) else { continue };
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    /// Its origin, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request, once it is there: head and body as they came.
    ///
    /// # Panics
    /// When none comes in time.
    pub fn request(&self) -> String {
        self.requests.recv_timeout(PATIENCE).expect("a request arrives at the endpoint")
    }
}

/// Reads one request and answers it; `None` when there was none.
fn answered(mut stream: TcpStream, status: impl FnOnce() -> u16) -> Option<String> {
    let mut taken = Vec::new();
    let mut chunk = [0; 4096];
    while !is_whole(&taken) {
        match stream.read(&mut chunk) {
            Ok(count) if count > 0 => taken.extend(&chunk[..count]),
            _ => return None,
        }
    }
    let head = format!("HTTP/1.1 {} Whatever\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", status());
    stream.write_all(head.as_bytes()).ok()?;
    Some(String::from_utf8_lossy(&taken).into_owned())
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}
