//! Addresses of servers: IPv6 literals, several hosts, logins that change.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{
    AddressSource, DoctorStore, Index, Node, NodeStore, NotifyStore, SchemaStore, SessionStore, Severity, hosts, with_hosts,
};
use outbox::{MySqlStore, PostgresStore, Store, StoreError, TransactionalStore};
use servers::{Database, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use support::{Harness, MySql, Network, Postgres, Proxy, eventually, in_time};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{LEASE, claim_due, expectations, owner, plains, write};

/// Listens on `[::1]`, and passes everything on to a server. Returns its host and port as an address has them.
async fn over_ipv6(server: String) -> String {
    let listener = TcpListener::bind("[::1]:0").await.expect("this machine has IPv6");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    address.to_string()
}

async fn proxy(url: &str) -> Proxy {
    let server: SocketAddr = hosts(url).parse().expect("an address of this machine");
    Proxy::in_front_of(server).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_reached_by_an_ipv6_literal() {
    let (postgres, mysql) = (Postgres::fresh().await, MySql::fresh().await);
    let over = |url: String| async move { with_hosts(&url, &over_ipv6(hosts(&url).to_owned()).await) };
    let url = over(postgres.url().to_owned()).await;
    assert!(url.contains("@[::1]:"), "{url}");

    let by_ipv6 = PostgresStore::connect(&url).await.expect("PostgreSQL is reached");

    by_ipv6.check_schema().await.expect("it is the same database");
    by_ipv6.listen().await.expect("listens").expect("PostgreSQL tells");
    let by_ipv6 = MySqlStore::connect(&over(mysql.url()).await).await.expect("MariaDB is reached");
    by_ipv6.check_schema().await.expect("it is the same database");
}

/// Everything that opens a connection: for the host, its leases, its session, wake-ups, the application, and a long statement.
async fn everything_works(store: &PostgresStore, name: &str) -> Result<(), StoreError> {
    claim_due(store, 1).await?;
    store.heartbeat(&Node::new(owner(name), name, "multi_node", "1"), LEASE).await?;
    let transaction = store.begin().await?;
    PostgresStore::rollback(transaction).await?;
    store.listen().await?;
    if let Some(session) = store.hold_session(&owner(name)).await? {
        session.end().await;
    }
    store.add_index(Index::Aggregate).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_of_an_address_are_tried_in_order_whenever_a_connection_is_opened() {
    let db = Postgres::fresh().await;
    write(&db, &plains(&db, 3).await).await;
    let (first, second) = (proxy(db.url()).await, proxy(db.url()).await);
    let url = with_hosts(db.url(), &format!("{},{}", first.address(), second.address()));
    first.set(Network::Refuse);
    let store = PostgresStore::connect(&url).await.expect("the second host answers");
    everything_works(&store, "started").await.expect("by the second host");

    // One after the other, each is the only one that is there.
    for (lost, there) in [(&second, &first), (&first, &second)] {
        there.set(Network::Pass);
        lost.set(Network::Refuse);
        eventually("the host continues with the other server", async || match everything_works(&store, "continues").await {
            Ok(()) => true,
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                false
            }
        })
        .await;
    }

    second.set(Network::Refuse);
    let error = PostgresStore::connect(&url).await.expect_err("neither answers");
    let told = outbox::chain(&error).to_string();
    let named = [&first, &second].iter().all(|proxy| told.contains(&proxy.address().to_string()));
    assert!(named && error.is_transient(), "{told}");
}

/// A firewall drops its packets, say: a connection is never refused, and nothing is answered on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_host_of_several_is_passed_over_long_before_a_pool_gives_up() {
    let db = Postgres::fresh().await;
    write(&db, &plains(&db, 3).await).await;
    let silent = proxy(db.url()).await;
    silent.set(Network::HalfOpen);
    let mut options =
        PostgresOptions::from_url(&with_hosts(db.url(), &format!("{},{}", silent.address(), hosts(db.url())))).expect("good");
    // Longer than the test waits.
    options.acquire_timeout = Duration::from_secs(3_600);

    let store = in_time("the second host answers", PostgresStore::connect_with(options)).await.expect("connects");

    in_time("nothing waits for the first", everything_works(&store, "started")).await.expect("by the second host");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_takes_no_writes_is_passed_over_unless_the_address_asks_for_any() {
    let db = Postgres::fresh().await;
    let read_only =
        tokio::task::block_in_place(|| Server::start(Database::PostgreSql, Durability::Volatile).expect("it starts"));
    // The same user and database there, read-only.
    let mut admin = PgConnection::connect(&read_only.url()).await.expect("connects");
    let (_, password) = db.url().split_once("://postgres:").expect("a superuser");
    let (password, _) = password.split_once('@').expect("a password");
    for sql in [
        format!("ALTER ROLE postgres PASSWORD '{password}'"),
        "ALTER ROLE postgres SET default_transaction_read_only = on".to_owned(),
    ] {
        admin.execute(AssertSqlSafe(sql)).await.expect("is set");
    }
    let url = with_hosts(db.url(), &format!("127.0.0.1:{},{}", read_only.port(), hosts(db.url())));

    let writes = PostgresStore::connect(&url).await.expect("one of them takes writes");

    let asks_for = |attributes: &str| {
        let url = format!("{url}&target_session_attrs={attributes}");
        async move { PostgresStore::connect(&url).await.expect("connects") }
    };
    for store in [&writes, &asks_for("read-write").await] {
        store.check_schema().await.expect("this is the second one");
        store.begin().await.expect("begins");
    }
    for attributes in ["any", "primary"] {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let subscribed = tracing::subscriber::set_default(subscriber);
        let store = asks_for(attributes).await;
        let findings = store.diagnose(&expectations()).await.expect("looks");
        drop(subscribed);

        let (first, logged) = (format!("127.0.0.1:{}", read_only.port()), log.text());
        assert_eq!(logged.matches("the server takes no writes").count(), 1, "{attributes}: {logged}");
        assert!(logged.contains(&first) && logged.contains("its sessions are read-only"), "{attributes}: {logged}");
        let writable = findings.iter().find(|finding| finding.check == "writable").expect("was looked at");
        assert!(writable.severity == Severity::Fault && writable.found.contains(&first), "{attributes}: {writable:?}");
        assert!(matches!(store.check_schema().await, Err(StoreError::NoSchema { .. })), "{attributes}: this is the first one");
    }
    let alone = with_hosts(&url, &format!("127.0.0.1:{}", read_only.port()));
    let error = PostgresStore::connect(&format!("{alone}&target_session_attrs=read-write")).await.expect_err("refused");
    assert!(outbox::chain(&error).to_string().contains("read-only") && error.is_transient(), "{error:?}");
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An address whose password changes.
struct Changing {
    address: Mutex<String>,
    refusals: Mutex<u32>,
}

impl Changing {
    fn new(address: String) -> Arc<Self> {
        Arc::new(Self { address: Mutex::new(address), refusals: Mutex::default() })
    }
}

#[async_trait]
impl AddressSource for Changing {
    async fn address(&self, is_refused: bool) -> Result<String, String> {
        *self.refusals.lock().expect("no panic") += u32::from(is_refused);
        Ok(self.address.lock().expect("no panic").clone())
    }
}

/// The same address with another user.
fn logged_in_as(url: &str, user: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("an address");
    let (_, place) = rest.split_once('@').expect("a user");
    format!("{scheme}://{user}:{password}@{place}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_rotated_is_read_again_on_postgresql() {
    let db = Postgres::fresh().await;
    write(&db, &plains(&db, 3).await).await;
    let user = format!("{}_rotated", db.schema());
    db.execute(&format!("CREATE ROLE {user} SUPERUSER LOGIN PASSWORD 'first'")).await;
    let source = Changing::new(logged_in_as(db.url(), &user, "first"));
    let options = PostgresOptions::from_source(source.clone()).await.expect("an address");
    let store = PostgresStore::connect_with(options).await.expect("connects");
    everything_works(&store, "before").await.expect("with the first password");

    db.execute(&format!("ALTER ROLE {user} PASSWORD 'second'")).await;
    db.execute(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'")).await;

    eventually("the first password is refused", async || {
        matches!(claim_due(&store, 1).await, Err(error @ StoreError::LoginRefused { .. }) if error.is_transient() && !error.may_concern_rows())
    })
    .await;
    assert!(*source.refusals.lock().expect("no panic") > 0, "the source hears of it");
    *source.address.lock().expect("no panic") = logged_in_as(db.url(), &user, "second");
    eventually("the host continues with the second", async || everything_works(&store, "after").await.is_ok()).await;
    store.close().await;
    db.execute(&format!("DROP ROLE {user}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_rotated_is_read_again_on_mariadb() {
    let db = MySql::fresh().await;
    write(&db, &plains(&db, 3).await).await;
    let user = format!("{}_r", db.name());
    db.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'first'")).await;
    db.execute(&format!("GRANT ALL ON {}.* TO '{user}'@'%'", db.name())).await;
    let source = Changing::new(logged_in_as(&db.url(), &user, "first"));
    let options = MySqlOptions::from_source(source.clone()).await.expect("an address");
    let store = MySqlStore::connect_with(options).await.expect("connects");
    claim_due(&store, 1).await.expect("with the first password");

    db.execute(&format!("ALTER USER '{user}'@'%' IDENTIFIED BY 'second'")).await;
    db.execute(&format!("KILL USER '{user}'@'%'")).await;

    eventually(
        "the first password is refused",
        async || matches!(claim_due(&store, 1).await, Err(error @ StoreError::LoginRefused { .. }) if error.is_transient()),
    )
    .await;
    *source.address.lock().expect("no panic") = logged_in_as(&db.url(), &user, "second");
    eventually("the host continues with the second", async || {
        let begun = store.begin().await;
        begun.is_ok() && claim_due(&store, 1).await.is_ok() && store.hold_session(&owner("after")).await.is_ok()
    })
    .await;
    store.close().await;
    db.execute(&format!("DROP USER '{user}'@'%'")).await;
}
