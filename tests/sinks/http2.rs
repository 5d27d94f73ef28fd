//! Webhooks over HTTP/2, where all requests share one connection.

use std::io;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::certificate::certificate;
use crate::common::{order, send_one, send_until_confirmed, sink};

/// The length of the preface of a client.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// The flag that ends a stream, on `DATA` and `HEADERS`.
const END_STREAM: u8 = 1;
/// The flag of an answer, on `SETTINGS` and `PING`.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 204`, by its index in the static table.
const NO_CONTENT: [u8; 1] = [0x89];

/// A frame: its kind, flags and stream, and its payload.
struct Frame {
    kind: u8,
    flags: u8,
    stream: [u8; 4],
    payload: Vec<u8>,
}

impl Frame {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; (usize::from(a) << 16) | (usize::from(b) << 8) | usize::from(c)];
        stream.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, stream: id, payload })
    }

    /// Writes this frame, whose payload has less than 256 bytes.
    async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let length = u8::try_from(self.payload.len()).expect("short");
        let head = [&[0, 0, length, self.kind, self.flags][..], &self.stream].concat();
        stream.write_all(&[head, self.payload.clone()].concat()).await?;
        stream.flush().await
    }
}

/// Confirms the first requests of a connection, as many as `answers`, and reads everything else without a word.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answers: usize) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE]).await?;
    Frame { kind: SETTINGS, flags: 0, stream: [0; 4], payload: Vec::new() }.write(&mut stream).await?;
    let mut answered = 0;
    loop {
        let frame = Frame::read(&mut stream).await?;
        let answer = match frame.kind {
            _ if answered == answers => continue,
            SETTINGS if frame.flags & ACK == 0 => Frame { flags: ACK, payload: Vec::new(), ..frame },
            PING if frame.flags & ACK == 0 => Frame { flags: ACK, ..frame },
            DATA | HEADERS if frame.flags & END_STREAM != 0 => {
                answered += 1;
                Frame { kind: HEADERS, flags: END_HEADERS | END_STREAM, payload: NO_CONTENT.to_vec(), ..frame }
            }
            _ => continue,
        };
        answer.write(&mut stream).await?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_replaced_while_messages_keep_coming() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            // The first connection goes silent after its first answer, as behind a router that has lost it.
            let answers = if number == 0 { 1 } else { usize::MAX };
            tokio::spawn(async move { serve(certificate().http2_acceptor().accept(stream).await?, answers).await });
        }
    });
    let config =
        json!({"kind": "http", "url": format!("https://{address}"), "ca_file": certificate().authority, "timeout": "2s"});
    let sink = sink(config);
    assert_eq!(send_one(&*sink, order(0)).await, Ok(()));

    let failures = send_until_confirmed(&*sink, order(1)).await;

    assert!(failures > 0, "the first connection was silent");
}
