//! Look-ups of names: those of one plugin, and what they leave for others.

use std::sync::atomic::AtomicUsize;

use super::super::connector::ConnectError;
use super::*;

/// Never answers for a host whose name ends in `slow.example`; every other one is this machine.
#[derive(Default)]
struct SlowForSome {
    begun_slow: AtomicUsize,
}

impl Resolver for SlowForSome {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        if host.ends_with("slow.example") {
            self.begun_slow.fetch_add(1, Ordering::SeqCst);
            return Box::pin(std::future::pending());
        }
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }
}

impl SlowForSome {
    fn begun_slow(&self) -> usize {
        self.begun_slow.load(Ordering::SeqCst)
    }
}

const GRANT: &str = "allow = ['http://*.slow.example:PORT', 'http://slow.example:PORT', 'http://quick.example:PORT', 'http://127.0.0.1:PORT']\n\
                     allow_private = ['127.0.0.1']";

fn hurried(url: String) -> Request {
    Request { timeout_ms: Some(1), ..request(url) }
}

/// Asks for the addresses of these slow hosts, and waits for none.
async fn ask_for_slow_hosts(guest: &mut HostState, server: &Server, hosts: std::ops::Range<usize>) {
    for host in hosts {
        assert!(sent(guest, hurried(server.url(&format!("h{host}.slow.example")))).await.is_err());
    }
}

#[tokio::test]
async fn a_plugin_whose_names_are_never_found_delays_no_other_and_begins_only_its_share_of_look_ups() {
    let server = Server::echoing().await;
    let resolver = Arc::new(SlowForSome::default());
    let lookups = Lookups::new(resolver.clone());
    let mut slow = guest_with(client(GRANT, &server, &lookups));
    let mut beside = guest_with(client(GRANT, &server, &lookups));

    ask_for_slow_hosts(&mut slow, &server, 0..100).await;

    assert_eq!(resolver.begun_slow(), 4);
    for host in ["127.0.0.1", "quick.example"] {
        assert_eq!(sent(&mut beside, request(server.url(host))).await.unwrap().status, 200, "{host}");
    }
    assert_eq!(sent(&mut slow, request(server.url("127.0.0.1"))).await.unwrap().status, 200, "an address needs no look-up");
    assert_eq!(resolver.begun_slow(), 4, "those who were cut off have left the line");
}

#[tokio::test]
async fn fifteen_plugins_whose_names_are_never_found_leave_a_turn_for_another() {
    let server = Server::echoing().await;
    let resolver = Arc::new(SlowForSome::default());
    let lookups = Lookups::new(resolver.clone());
    for _ in 0..15 {
        ask_for_slow_hosts(&mut guest_with(client(GRANT, &server, &lookups)), &server, 0..8).await;
    }
    assert_eq!(resolver.begun_slow(), 15 + 16, "the first ones of each, and all that there are beside");

    let mut beside = guest_with(client(GRANT, &server, &lookups));
    assert_eq!(sent(&mut beside, request(server.url("quick.example"))).await.unwrap().status, 200);
}

#[tokio::test]
async fn one_look_up_answers_all_who_ask_for_the_same_host_meanwhile() {
    let server = Server::echoing().await;
    let resolver = Arc::new(SlowForSome::default());
    let mut guest = guest_with(client(GRANT, &server, &Lookups::new(resolver.clone())));
    for _ in 0..100 {
        assert!(sent(&mut guest, hurried(server.url("slow.example"))).await.is_err());
    }
    assert_eq!(resolver.begun_slow(), 1);
    assert_eq!(sent(&mut guest, request(server.url("quick.example"))).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_request_that_only_waits_for_the_host_is_unavailable_before_its_call_is_over() {
    let server = Server::echoing().await;
    let mut guest = guest_with(client(GRANT, &server, &Lookups::new(Arc::new(SlowForSome::default()))));
    ask_for_slow_hosts(&mut guest, &server, 0..4).await;

    let refused = refused(&mut guest, request(server.url("quick.example")));
    let (kind, message) = tokio::time::timeout(Limits::default().deadline, refused).await.expect("the guest hears of it");

    assert_eq!(kind, RefusalKind::Unavailable);
    assert_eq!(message, "no connection to quick.example was tried: look-ups of other names had not ended in time");
    let busy = ConnectError::Busy { host: String::new(), reason: "" };
    let told = super::super::wasi::wasi(super::super::SendError::Connect(busy));
    assert!(matches!(told, wasmtime_wasi_http::Error::ConnectionLimitReached), "{told:?}");
}
