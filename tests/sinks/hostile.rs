//! Brokers that answer wrongly, endlessly, or not at all: only their own sink is down, and it comes back by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::sink::{Sink, SinkError};
use serde_json::{Value, json};
use support::{PATIENCE, eventually};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::certificate::certificate;
use crate::common::{order, send_one, send_until_confirmed, sink, to};

/// A server that treats each connection so. Returns its address, and how many connections of it have ended.
pub(crate) async fn server<F>(
    serve: impl Fn(usize, TcpStream) -> F + Send + 'static,
) -> (String, mpsc::UnboundedReceiver<usize>)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let (ended, ends) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            let (ended, served) = (ended.clone(), serve(number, stream));
            tokio::spawn(async move {
                let _ = served.await;
                let _ = ended.send(number);
            });
        }
    });
    (address, ends)
}

/// Reads until the client closes.
pub(crate) async fn listen(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Sends endlessly, as fast as the client reads.
pub(crate) async fn flood(stream: &mut (impl AsyncWriteExt + Unpin)) -> io::Result<()> {
    loop {
        stream.write_all(&[b'x'; 1 << 16]).await?;
    }
}

/// The next connection has ended.
pub(crate) async fn ended(ends: &mut mpsc::UnboundedReceiver<usize>) {
    let end = tokio::time::timeout(PATIENCE, ends.recv()).await;
    assert!(end.is_ok(), "a connection that was given up is kept");
}

pub(crate) async fn is_down(sink: &dyn Sink) -> String {
    match send_one(sink, order(1)).await {
        Err(SinkError::Down { reason, .. }) => reason,
        other => panic!("the server does not answer as one: {other:?}"),
    }
}

/// Answers one request after the other.
async fn answer_all(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        // Long enough that a second request begins to connect meanwhile.
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_finishes_no_handshake_but_the_first_keeps_no_connection_of_ours() {
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let (address, mut ends) = server(move |number, mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if number > 0 {
                return listen(&mut stream).await;
            }
            answer_all(&mut certificate().acceptor().accept(stream).await?).await
        }
    })
    .await;
    let config =
        json!({"kind": "http", "url": format!("https://{address}"), "ca_file": certificate().authority, "timeout": "2s"});
    let sink = sink(config);
    send_until_confirmed(&*sink, order(0)).await;

    eventually("a second connection begins", async || {
        sink.send(&[order(1), order(2)]).await;
        opened.load(Ordering::SeqCst) >= 2
    })
    .await;

    // The first connection stays open for later messages.
    let end = tokio::time::timeout(PATIENCE, ends.recv()).await;
    assert!(end.is_ok_and(|number| number.is_some_and(|number| number > 0)), "a connection that no request needs is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_sends_informational_responses_without_an_end_is_cut_off() {
    let (address, mut ends) = server(|_, mut stream| async move {
        let _request = stream.read(&mut [0; 4096]).await?;
        let responses = b"HTTP/1.1 103 Early\r\nlink: a\r\n\r\n".repeat(1 << 10);
        loop {
            stream.write_all(&responses).await?;
        }
    })
    .await;
    let sink = sink(json!({"kind": "http", "url": format!("http://{address}"), "timeout": "600s"}));

    let failed = tokio::time::timeout(PATIENCE, send_one(&*sink, order(1))).await;

    let failed = failed.expect("it does not wait for its timeout").expect_err("it has no response");
    assert!(matches!(&failed, SinkError::Unavailable { .. }), "{failed:?}");
    assert!(failed.to_string().contains("sent more than 128 KiB"), "{failed}");
    ended(&mut ends).await;
}

fn amqp(address: &str, timeout: &str) -> Value {
    json!({"kind": "amqp", "url": format!("amqp://{address}"), "routing_key": "orders", "timeout": timeout})
}

fn method(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
    payload.extend(arguments);
    let mut frame = vec![1];
    frame.extend(channel.to_be_bytes());
    frame.extend(u32::try_from(payload.len()).expect("short").to_be_bytes());
    frame.extend(payload);
    frame.push(0xCE);
    frame
}

/// Reads one frame of the client.
async fn frame(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = [0; 7];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes(head[3..].try_into().expect("four bytes"));
    let mut rest = vec![0; usize::try_from(length).expect("short") + 1];
    stream.read_exact(&mut rest).await.map(|_| ())
}

/// Greets as RabbitMQ does, with these bounds, up to the open connection.
async fn greet(stream: &mut TcpStream, frame_max: u32, heartbeat: u16) -> io::Result<()> {
    stream.read_exact(&mut [0; 8]).await?;
    let long = |text: &str| [&u32::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat();
    let start = [&[0, 9, 0, 0, 0, 0][..], &long("PLAIN"), &long("en_US")].concat();
    stream.write_all(&method(0, 10, 10, &start)).await?;
    frame(stream).await?; // start-ok
    let tune = [&2047_u16.to_be_bytes()[..], &frame_max.to_be_bytes(), &heartbeat.to_be_bytes()].concat();
    stream.write_all(&method(0, 10, 30, &tune)).await?;
    frame(stream).await?; // tune-ok
    frame(stream).await?; // open
    stream.write_all(&method(0, 10, 41, &[0])).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_amqp_without_a_bound_for_frames_or_with_a_huge_one_takes_no_memory() {
    for frame_max in [0, u32::MAX, 64 << 20] {
        let (address, mut ends) = server(move |_, mut stream| async move {
            greet(&mut stream, frame_max, 0).await?;
            listen(&mut stream).await
        })
        .await;

        let reason = is_down(&*sink(amqp(&address, "500ms"))).await;

        assert!(reason.contains("does not answer"), "{frame_max}: {reason}");
        ended(&mut ends).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_amqp_that_says_nothing_keeps_no_connection_of_ours() {
    let (address, mut ends) = server(|_, mut stream| async move { listen(&mut stream).await }).await;

    let reason = is_down(&*sink(amqp(&address, "300ms"))).await;

    assert!(reason.contains("does not answer"), "{reason}");
    ended(&mut ends).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_redis_without_an_end_is_not_collected() {
    for beginning in ["+", "$100000000000\r\n"] {
        let (address, mut ends) = server(move |_, mut stream| async move {
            let _command = stream.read(&mut [0; 4096]).await?;
            stream.write_all(beginning.as_bytes()).await?;
            flood(&mut stream).await
        })
        .await;
        let config = json!({"kind": "redis", "url": format!("redis://{address}"), "timeout": "60s"});

        let reason = is_down(&*sink(config)).await;

        assert!(reason.contains("sends more than 16 MiB"), "{beginning}: {reason}");
        ended(&mut ends).await;
    }
}

/// The next command for Redis, and its arguments.
pub(crate) async fn redis_command(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    async fn number(stream: &mut BufReader<TcpStream>) -> io::Result<usize> {
        let mut line = String::new();
        match stream.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end()[1..].parse().expect("a number")),
        }
    }
    let mut command = Vec::new();
    for _ in 0..number(stream).await? {
        let mut argument = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut argument).await?;
        command.push(String::from_utf8_lossy(&argument[..argument.len() - 2]).into_owned());
    }
    Ok(command)
}

/// A server of Redis that refuses entries of some streams with these answers, and takes all others.
async fn redis(refusal: impl Fn(&str) -> Option<String> + Clone + Send + Sync + 'static) -> String {
    let serve = move |_, stream| {
        let refusal = refusal.clone();
        async move {
            let mut stream = BufReader::new(stream);
            loop {
                let answer = match redis_command(&mut stream).await?.as_slice() {
                    [add, key, ..] if add == "XADD" => refusal(key).unwrap_or_else(|| "+1-1".to_owned()),
                    _ => "+OK".to_owned(),
                };
                stream.write_all(format!("{answer}\r\n").as_bytes()).await?;
            }
        }
    };
    server(serve).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_redis_has_no_memory_for_waits_though_another_one_was_taken() {
    let address = redis(|stream| (stream == "full").then(|| "-OOM command not allowed".to_owned())).await;
    for _ in 0..20 {
        let sink = sink(json!({"kind": "redis", "url": format!("redis://{address}"), "stream": "works"}));
        let answers = sink.send(&[order(1), to("full", order(2))]).await;
        assert_eq!(answers[0], Ok(()));
        match &answers[1] {
            Err(SinkError::Unavailable { reason, .. }) if reason.contains("OOM") => return,
            // On a busy machine, the sink sent the first one before it got the second.
            Err(SinkError::Down { reason, .. }) if reason.contains("OOM") => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("the two were never sent together");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_redis_cluster_that_hangs_is_left_alone_and_others_get_their_messages() {
    let hangs = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let at = hangs.local_addr().expect("it is bound");
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(connection) = hangs.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            kept.push(connection);
        }
    });
    let address = redis(move |stream| (stream == "hangs").then(|| format!("-MOVED 1 {at}"))).await;
    let sink = sink(json!({"kind": "redis", "url": format!("redis://{address}"), "stream": "works", "timeout": "1s"}));

    for number in 0..50 {
        let [hanging, other] = sink.send(&[to("hangs", order(1)), order(number)]).await.try_into().expect("two answers");
        assert!(matches!(&hanging, Err(SinkError::Unavailable { .. })), "{hanging:?}");
        assert_eq!(other, Ok(()));
    }

    let tries = connections.load(Ordering::SeqCst);
    assert!((1..25).contains(&tries), "most messages did not wait for the node: {tries}");
}
