//! Servers of NATS that answer wrongly, endlessly, or not at all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outbox::sink::{Message, SinkError};
use serde_json::{Value, json};
use support::eventually;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::common::{order, send_one, send_until_confirmed, sink};
use crate::hostile::{ended, flood, is_down, listen, server};

const INFO: &str = r#"INFO {"server_id":"x","server_name":"x","version":"2.10.0","go":"x","host":"127.0.0.1","port":4222,"headers":true,"max_payload":1048576,"proto":1,"client_id":1}"#;

/// Plays NATS on a connection until a message comes. Returns the stream, and the beginning of an answer: `MSG` with all but its length.
async fn nats_until_a_message(stream: TcpStream) -> io::Result<(BufReader<TcpStream>, String)> {
    nats_with(INFO, stream).await
}

/// The same, with this greeting.
async fn nats_with(info: &str, stream: TcpStream) -> io::Result<(BufReader<TcpStream>, String)> {
    let mut stream = BufReader::new(stream);
    stream.write_all(format!("{info}\r\n").as_bytes()).await?;
    let answer = nats_message(&mut stream, &mut String::new()).await?;
    Ok((stream, answer))
}

/// Plays NATS on a connection after its greeting until a message comes. Returns the beginning of an answer.
async fn nats_message(stream: &mut BufReader<TcpStream>, subscription: &mut String) -> io::Result<String> {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.starts_with("PING") {
            stream.write_all(b"PONG\r\n").await?;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["SUB", _, number] = words[..] {
            number.clone_into(subscription);
        }
        if let ["HPUB", _, answers, _, all] = words[..] {
            let mut rest = vec![0; all.parse::<usize>().expect("a length") + 2];
            stream.read_exact(&mut rest).await?;
            return Ok(format!("MSG {answers} {subscription}"));
        }
    }
}

/// The acknowledgement of a stream.
const ACK: &str = r#"{"stream":"ORDERS","seq":7}"#;

/// Plays NATS on a connection, and answers this many messages.
async fn nats_answering(messages: usize, answer: &str, stream: TcpStream) -> io::Result<BufReader<TcpStream>> {
    let (mut stream, mut subscription) = (BufReader::new(stream), String::new());
    stream.write_all(format!("{INFO}\r\n").as_bytes()).await?;
    for _ in 0..messages {
        let beginning = nats_message(&mut stream, &mut subscription).await?;
        stream.write_all(format!("{beginning} {}\r\n{answer}\r\n", answer.len()).as_bytes()).await?;
    }
    Ok(stream)
}

/// The state of a server that sends endlessly.
#[derive(Default)]
pub(crate) struct Flood {
    /// The bytes that it has sent.
    pub(crate) sent: AtomicUsize,
    /// Whether it behaves on its next connections.
    pub(crate) is_over: AtomicBool,
}

impl Flood {
    /// Sends this text endlessly, as fast as the client reads.
    async fn send(&self, text: &str, stream: &mut (impl AsyncWriteExt + Unpin)) -> io::Result<()> {
        let texts = text.repeat((1 << 16) / text.len());
        loop {
            stream.write_all(texts.as_bytes()).await?;
            self.sent.fetch_add(texts.len(), Ordering::SeqCst);
        }
    }
}

/// A server of NATS that answers the first message of each connection by this text, endlessly, until the flood is over.
pub(crate) async fn flooding_nats(text: &'static str, flood: Arc<Flood>) -> (String, mpsc::UnboundedReceiver<usize>) {
    server(move |_, stream| {
        let flood = flood.clone();
        async move {
            if flood.is_over.load(Ordering::SeqCst) {
                return nats_answering(usize::MAX, ACK, stream).await.map(drop);
            }
            let (mut stream, _) = nats_until_a_message(stream).await?;
            flood.send(text, &mut stream).await
        }
    })
    .await
}

fn nats(address: &str) -> Value {
    nats_within("3s", address)
}

pub(crate) fn nats_within(timeout: &str, address: &str) -> Value {
    json!({"kind": "nats", "url": format!("nats://{address}"), "subject": "orders", "timeout": timeout})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_of_nats_connects_anew_after_answers_that_break_its_client() {
    for broken in ["-ERR\r\n", "MSG a 1 18446744073709551615\r\n"] {
        let (address, _ends) = server(move |number, stream| async move {
            let (mut stream, answer) = nats_until_a_message(stream).await?;
            if number == 0 {
                stream.write_all(broken.as_bytes()).await?;
            } else {
                stream.write_all(format!("{answer} {}\r\n{ACK}\r\n", ACK.len()).as_bytes()).await?;
            }
            listen(&mut stream).await
        })
        .await;

        let failures = send_until_confirmed(&*sink(nats(&address)), order(1)).await;

        assert!(failures > 0, "the first answer was malformed: {broken}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_server_of_nats_has_stopped_is_down_when_its_messages_time_out() {
    let (address, _ends) = server(|_, stream| async move {
        let (mut stream, _) = nats_until_a_message(stream).await?;
        listen(&mut stream).await
    })
    .await;

    let reason = is_down(&*sink(nats(&address))).await;

    assert!(reason.contains("does not answer"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_nats_sends_the_host_to_no_other_server() {
    let connected = Arc::new(AtomicUsize::new(0));
    let counted = connected.clone();
    let (other, _ends) = server(move |_, mut stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { listen(&mut stream).await }
    })
    .await;
    let info = INFO.replacen('{', &format!(r#"{{"connect_urls":["{other}"],"#), 1);
    // It closes the connection when a message comes.
    let (address, _ends) = server(move |_, stream| {
        let info = info.clone();
        async move { nats_with(&info, stream).await.map(drop) }
    })
    .await;
    let sink = sink(nats(&address));

    for number in 0..20 {
        send_one(&*sink, order(number)).await.expect_err("it is not confirmed");
    }

    assert_eq!(connected.load(Ordering::SeqCst), 0, "it would be sent the password of the sink");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_nats_without_an_end_is_not_collected() {
    let (address, mut ends) = server(|_, stream| async move {
        let (mut stream, answer) = nats_until_a_message(stream).await?;
        stream.write_all(format!("{answer} 99999999999\r\n").as_bytes()).await?;
        flood(&mut stream).await
    })
    .await;

    let reason = is_down(&*sink(nats_within("60s", &address))).await;

    assert!(reason.contains("sent 2 MiB more"), "{reason}");
    ended(&mut ends).await;
}

/// The bytes that a server of NATS may send and a slow test machine may not notice at once, far below what it sends in a minute.
const MOST_SENT: usize = 512 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn server_of_nats_that_sends_endlessly_is_cut_off_and_gets_messages_again_once_it_behaves() {
    for text in ["PING\r\n", "MSG elsewhere 99 0\r\n\r\n"] {
        let flood = Arc::new(Flood::default());
        let (address, mut ends) = flooding_nats(text, flood.clone()).await;
        let sink = sink(nats_within("60s", &address));

        let reason = is_down(&*sink).await;

        assert!(reason.contains("sent 2 MiB more"), "{text}: {reason}");
        ended(&mut ends).await;
        let sent = flood.sent.load(Ordering::SeqCst);
        assert!(sent < MOST_SENT, "{text}: {sent}");
        flood.is_over.store(true, Ordering::SeqCst);
        send_until_confirmed(&*sink, order(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_nats_that_sends_endlessly_between_two_messages_is_cut_off() {
    let flood = Arc::new(Flood::default());
    let flooding = flood.clone();
    let (address, mut ends) = server(move |number, stream| {
        let flood = flooding.clone();
        async move {
            if number > 0 {
                return nats_answering(usize::MAX, ACK, stream).await.map(drop);
            }
            let mut stream = nats_answering(1, ACK, stream).await?;
            flood.send("+OK\r\n", &mut stream).await
        }
    })
    .await;
    let sink = sink(nats(&address));
    send_until_confirmed(&*sink, order(1)).await;

    ended(&mut ends).await;

    let sent = flood.sent.load(Ordering::SeqCst);
    assert!(sent < MOST_SENT, "{sent}");
    send_until_confirmed(&*sink, order(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn greeting_of_nats_without_end_is_not_collected() {
    for beginning in ["INFO ", "MSG a 1 99999999999\r\n"] {
        let flood = Arc::new(Flood::default());
        let flooding = flood.clone();
        let (address, mut ends) = server(move |_, mut stream| {
            let flood = flooding.clone();
            async move {
                stream.write_all(beginning.as_bytes()).await?;
                flood.send("x", &mut stream).await
            }
        })
        .await;

        let reason = is_down(&*sink(nats_within("60s", &address))).await;

        assert!(reason.contains("sent too much before the login"), "{beginning}: {reason}");
        ended(&mut ends).await;
        let sent = flood.sent.load(Ordering::SeqCst);
        assert!(sent < 2 * MOST_SENT, "{beginning}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sink_of_nats_is_down_after_a_greeting_that_breaks_its_client_and_connects_anew() {
    let (address, _ends) = server(|number, mut stream| async move {
        if number > 0 {
            return nats_answering(usize::MAX, ACK, stream).await.map(drop);
        }
        stream.write_all(format!("{INFO}\r\n-ERR\r\n").as_bytes()).await?;
        listen(&mut stream).await
    })
    .await;
    let sink = sink(nats(&address));

    let reason = is_down(&*sink).await;

    assert!(reason.contains("cannot be connected to"), "{reason}");
    send_until_confirmed(&*sink, order(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_of_nats_do_not_count_as_sent_endlessly() {
    let (address, _ends) =
        server(|_, stream| async move { nats_answering(usize::MAX, &"x".repeat(1 << 20), stream).await.map(drop) }).await;
    let sink = sink(nats(&address));
    for number in 0..40 {
        let failed = send_one(&*sink, order(number)).await;
        assert!(matches!(&failed, Err(SinkError::Failed { .. })), "{number}: {failed:?}");
    }
}

/// The client drops news of its connection while many errors wait to be looked at.
#[tokio::test(flavor = "multi_thread")]
async fn connection_of_nats_that_ends_after_many_errors_is_noticed() {
    let (address, _ends) = server(|number, stream| async move {
        if number > 0 {
            return nats_answering(usize::MAX, ACK, stream).await.map(drop);
        }
        let (mut stream, _) = nats_until_a_message(stream).await?;
        stream.write_all("-ERR 'no'\r\n".repeat(1_000).as_bytes()).await
    })
    .await;
    let sink = sink(nats_within("14s", &address));

    let reason = is_down(&*sink).await;

    assert!(reason.contains("was lost"), "{reason}");
    send_until_confirmed(&*sink, order(2)).await;
}

/// Nothing else runs while the server waits, so the host sees the answer and the end at the same time.
#[tokio::test]
async fn message_that_nats_confirms_before_it_closes_is_sent() {
    let (address, _ends) = server(|_, stream| async move {
        drop(nats_answering(1, ACK, stream).await?);
        std::thread::sleep(Duration::from_millis(150));
        Ok(())
    })
    .await;
    let sink = sink(nats(&address));
    for number in 0..20 {
        let sent = send_one(&*sink, order(number)).await;
        assert!(sent.is_ok(), "{number}: {sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_were_given_up_are_not_sent_when_nats_reads_again() {
    const SENT: usize = 300;
    let (reads, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (reading, counted) = (reads.clone(), received.clone());
    let (address, _ends) = server(move |_, stream| {
        let (reads, received) = (reading.clone(), counted.clone());
        async move {
            let (mut stream, _) = nats_until_a_message(stream).await?;
            while !reads.load(Ordering::SeqCst) {
                stream.write_all(b"PING\r\n").await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let mut subscription = String::new();
            loop {
                nats_message(&mut stream, &mut subscription).await?;
                received.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    let sink = sink(nats_within("2s", &address));
    let large = |number| Message { body: vec![b' '; 250_000].into(), ..order(number) };

    let sent = sink.send(&(0..SENT).map(large).collect::<Vec<_>>()).await;

    assert!(sent.iter().all(Result::is_err), "they are not answered");
    reads.store(true, Ordering::SeqCst);
    let mut before = None;
    eventually("the client has nothing left to write", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = received.load(Ordering::SeqCst);
        now > 0 && before.replace(now) == Some(now)
    })
    .await;
    let received = received.load(Ordering::SeqCst);
    assert!(received < SENT / 2, "{received} messages");
}
