//! A server on this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that answers every request on every connection by a function of the request's text.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) connections: Arc<AtomicUsize>,
}

impl Server {
    pub(super) async fn start<A, F>(answer: A) -> Self
    where
        A: Fn(String, TcpStream) -> F + Send + Sync + 'static,
        F: Future<Output = Option<TcpStream>> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, answer) = (connections.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let answer = answer.clone();
                tokio::spawn(async move {
                    while let Some(request) = read(&mut stream).await {
                        match answer(request, stream).await {
                            Some(again) => stream = again,
                            None => return,
                        }
                    }
                });
            }
        });
        Self { port, connections }
    }

    /// One that always answers with this text.
    pub(super) async fn answering(text: &'static str) -> Self {
        Self::start(move |_, mut stream| async move {
            stream.write_all(text.as_bytes()).await.ok()?;
            Some(stream)
        })
        .await
    }

    /// One whose answer is what it was asked.
    pub(super) async fn echoing() -> Self {
        Self::start(|request, mut stream| async move {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.len());
            stream.write_all((head + &request).as_bytes()).await.ok()?;
            Some(stream)
        })
        .await
    }

    pub(super) fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/path", self.port)
    }
}

/// One request, head and body.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut bytes = [0; 4_096];
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => request.extend(&bytes[..count]),
        }
    }
}
