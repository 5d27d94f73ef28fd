//! The proxy, in front of a server that answers every byte with the same byte.

use tokio::time::timeout;

use super::*;
use crate::in_time;

/// How long we look at something that must not happen.
const MOMENT: Duration = Duration::from_millis(50);

async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await.ok();
            });
        }
    });
    address
}

async fn proxy() -> Proxy {
    Proxy::in_front_of(echo_server().await).await
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// Sends bytes and waits until as many have come back, or the connection has ended. Returns how many came.
async fn echoed(stream: &mut TcpStream, count: usize) -> usize {
    stream.write_all(&vec![7; count]).await.ok();
    let (mut back, mut came) = (vec![0; count], 0);
    while came < count {
        match in_time("an answer, or the end", stream.read(&mut back[came..])).await {
            Ok(0) | Err(_) => break,
            Ok(more) => came += more,
        }
    }
    came
}

#[tokio::test]
async fn bytes_pass_unchanged_and_many_at_a_time() {
    let proxy = proxy().await;
    let (mut one, mut other) = (connect(&proxy).await, connect(&proxy).await);

    assert_eq!((echoed(&mut one, 100_000).await, echoed(&mut other, 3).await), (100_000, 3));
}

#[tokio::test]
async fn a_cut_ends_what_is_open_and_nothing_else() {
    let proxy = proxy().await;
    let mut before = connect(&proxy).await;
    assert_eq!(echoed(&mut before, 3).await, 3);

    proxy.cut_now();

    assert_eq!(echoed(&mut before, 3).await, 0);
    assert_eq!(echoed(&mut connect(&proxy).await, 3).await, 3);
}

#[tokio::test]
async fn a_cut_after_so_many_bytes_lets_exactly_these_through() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(echoed(&mut stream, 10).await, 10, "what came before does not count");

    proxy.set(Network::CutAfter(5));

    assert_eq!(echoed(&mut stream, 3).await, 3);
    assert_eq!(echoed(&mut stream, 10).await, 2);
    proxy.set(Network::CutAfter(0));
    assert_eq!(echoed(&mut connect(&proxy).await, 10).await, 0);
}

#[tokio::test]
async fn while_it_refuses_nobody_gets_through() {
    let proxy = proxy().await;
    let mut before = connect(&proxy).await;
    assert_eq!(echoed(&mut before, 3).await, 3);

    proxy.set(Network::Refuse);
    assert_eq!(echoed(&mut before, 3).await, 0);
    assert_eq!(echoed(&mut connect(&proxy).await, 3).await, 0);

    proxy.set(Network::Pass);
    assert_eq!(echoed(&mut connect(&proxy).await, 3).await, 3);
}

#[tokio::test]
async fn a_half_open_connection_swallows_bytes_until_it_is_mended() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(echoed(&mut stream, 3).await, 3);

    proxy.set(Network::HalfOpen);
    assert!(timeout(MOMENT, echoed(&mut stream, 3)).await.is_err(), "neither an answer nor an end");
    assert!(timeout(MOMENT, echoed(&mut connect(&proxy).await, 3)).await.is_err(), "a new one is accepted, and as silent");

    proxy.set(Network::Pass);
    let mut back = [0; 3];
    in_time("what was sent arrives late", stream.read_exact(&mut back)).await.unwrap();
    proxy.set(Network::HalfOpen);
    proxy.cut_now();
    assert_eq!(echoed(&mut stream, 3).await, 0, "or the connection ends");
}

#[tokio::test]
async fn latency_and_throttle_take_their_time() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;

    proxy.set(Network::Latency(MOMENT));
    assert_eq!(after_an_alarm(MOMENT, echoed(&mut stream, 3)).await, 3, "there and back");

    proxy.set(Network::Throttle(10_000));
    assert_eq!(after_an_alarm(MOMENT, echoed(&mut stream, 1_000)).await, 1_000, "twice a tenth of a second");
}

/// What comes only after an alarm, set now, has rung. On a machine that stands still both may be due at once: then the alarm has
/// rung first, since it was due first.
async fn after_an_alarm<T>(span: Duration, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    tokio::select! {
        biased;
        () = tokio::time::sleep(span) => {}
        _ = &mut future => panic!("it came before the alarm"),
    }
    future.await
}

#[tokio::test]
async fn a_url_leads_through_the_proxy() {
    let proxy = proxy().await;

    let through = proxy.url("postgres://user:p@ss@127.0.0.1:5432/shop?x=1");

    assert_eq!(through, format!("postgres://user:p@ss@{}/shop?x=1", proxy.address()));
}

#[tokio::test]
async fn a_server_that_was_switched_off_is_silent_for_ever_and_another_answers() {
    let proxy = proxy().await;
    let mut before = connect(&proxy).await;
    assert_eq!(echoed(&mut before, 3).await, 3);

    proxy.set(Network::Forgets);

    let mut after = connect(&proxy).await;
    assert_eq!(echoed(&mut after, 3).await, 3);
    proxy.set(Network::Pass);
    before.write_all(&[7; 3]).await.unwrap();
    assert!(timeout(MOMENT, before.read(&mut [0; 3])).await.is_err(), "neither an answer nor an end");
    assert_eq!(echoed(&mut after, 3).await, 3);
}
