//! HTTP requests of plugins, to servers of the tests' own: many that wait at once, and TLS with an authority of one's own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::store::InspectStore;
use outbox::wasm::PluginsConfig;
use outbox::{Outbox, SqliteStore, Status};
use support::eventually;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::common::{Directory, commit, database, event, sample};

/// A server that answers every request with 204 after a while, on connections that stay open.
struct Server {
    port: u16,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Server {
    async fn start(wait: Duration, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Arc::<Seen>::default();
        let counted = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, tls) = (counted.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, wait, &seen).await,
                        // One whose handshake fails is no connection.
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, wait, &seen).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { port, seen }
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, wait: Duration, seen: &Seen) -> Option<()> {
    seen.connections.fetch_add(1, Ordering::Relaxed);
    loop {
        let mut taken = Vec::new();
        while !is_whole(&taken) {
            let count = stream.read_buf(&mut taken).await.ok().filter(|count| *count > 0)?;
            debug_assert!(count > 0);
        }
        let at_once = seen.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        seen.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        seen.requests.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(wait).await;
        seen.at_once.fetch_sub(1, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.ok()?;
        stream.flush().await.ok()?;
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A host with the default settings, the webhook sender and the plugin noop.
async fn host(store: SqliteStore, directory: &Directory, url: &str, ca_file: Option<&Path>) -> Outbox<SqliteStore> {
    let manifest = format!(
        "retry.max_attempts = 1\n[http]\nallow = [\"{url}\"]\nallow_private = [\"127.0.0.1\", \"::1\"]\n\
         [config]\nendpoint = \"{url}/orders\"\n[secrets]\ntoken = \"t0ken\"\n"
    );
    directory.put("order-webhook.toml", manifest.as_bytes());
    directory.put("order-webhook.wasm", &sample("order-webhook"));
    directory.put("noop.wasm", &sample("noop"));
    let ca_file = ca_file.map(Path::to_owned);
    let config = PluginsConfig { ca_file, ..directory.config() };
    Outbox::single_node(store).plugins_config(config).start().await.expect("starts")
}

#[expect(clippy::print_stdout, reason = "a figure for whoever runs the tests")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_waits_for_responses_keeps_neither_workers_nor_threads_from_others() {
    const EVENTS: usize = 2_000;
    let server = Server::start(Duration::from_millis(100), None).await;
    let (_db, store) = database().await;
    let directory = Directory::new();
    let outbox = host(store.clone(), &directory, &format!("http://127.0.0.1:{}", server.port), None).await;

    let neighbour = async |outbox: &Outbox<SqliteStore>| {
        let before = outbox.metrics().counts().dispatch_success;
        let began = Instant::now();
        commit(outbox, vec![event("Bench", "Noop", "1")]).await;
        eventually("the neighbour answers", async || outbox.metrics().counts().dispatch_success > before).await;
        began.elapsed()
    };
    let mut alone = Vec::new();
    for _ in 0..50 {
        alone.push(neighbour(&outbox).await);
    }

    let began = Instant::now();
    for _ in 0..EVENTS / 500 {
        commit(&outbox, (0..500).map(|_| event("Order", "OrderShipped", "{}")).collect()).await;
    }
    let answered = || usize::try_from(outbox.metrics().counts().dispatch_success).expect("few");
    eventually("every event is done", async || answered() >= EVENTS + 50).await;
    let took = began.elapsed();

    assert_eq!(server.seen.requests.load(Ordering::Relaxed), EVENTS, "one request for each event");
    let most = server.seen.most_at_once.load(Ordering::Relaxed);
    assert!((65..=128).contains(&most), "{most} requests at once: half of 256 workers, and more than a quarter");
    let connections = server.seen.connections.load(Ordering::Relaxed);
    assert!(connections < EVENTS / 2, "{connections} connections: they are used again");
    alone.sort();
    println!(
        "{EVENTS} events through a listener that waits 100 ms, default settings: {:.0} a second, {most} at once, {connections} \
         connections; a neighbour alone: p50 {:?}, most {:?}",
        EVENTS as f64 / took.as_secs_f64(),
        alone[25],
        alone[49]
    );
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_checked_against_the_authorities_that_the_operator_trusts_and_made_once_for_many_requests() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Duration::ZERO, Some(certified(folder.path()))).await;
    let url = format!("https://localhost:{}", server.port);

    let (_db, store) = database().await;
    let directory = Directory::new();
    let outbox = host(store.clone(), &directory, &url, Some(&folder.path().join("ca.crt"))).await;
    for number in 1..=5 {
        let id = commit(&outbox, vec![event("Order", "OrderShipped", "{}")]).await[0];
        let row = async || store.get(id).await.expect("reads").expect("the row is there");
        eventually("the event is done", async || row().await.status == Status::Done).await;
        assert_eq!(server.seen.requests.load(Ordering::Relaxed), number);
    }
    assert_eq!(server.seen.connections.load(Ordering::Relaxed), 1, "one handshake for five requests");
    outbox.shutdown().await;

    let (_db, store) = database().await;
    let directory = Directory::new();
    let outbox = host(store.clone(), &directory, &url, None).await;
    let id = commit(&outbox, vec![event("Order", "OrderShipped", "{}")]).await[0];
    let row = async || store.get(id).await.expect("reads").expect("the row is there");
    eventually("the event is dead", async || row().await.status == Status::Dead).await;
    let error = row().await.last_error.unwrap_or_default();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(server.seen.requests.load(Ordering::Relaxed), 5, "nothing reached a server that nobody vouches for");
    outbox.shutdown().await;
}

/// A server's side of TLS, with a certificate for `localhost` of an authority of its own, `ca.crt`.
fn certified(folder: &Path) -> TlsAcceptor {
    const MAKE: &str = "
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.crt
printf 'subjectAltName=DNS:localhost' > server.ext
openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt";
    let made = Command::new("sh").args(["-e", "-c", MAKE]).current_dir(folder).output().expect("sh is there");
    assert!(made.status.success(), "openssl is installed: {}", String::from_utf8_lossy(&made.stderr));
    let chain = CertificateDer::pem_file_iter(folder.join("server.crt")).expect("a file");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).expect("a key");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("known");
    let config = config.with_no_client_auth().with_single_cert(chain, key).expect("they belong together");
    TlsAcceptor::from(Arc::new(config))
}
