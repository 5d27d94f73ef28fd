//! Opening connections to the server.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::PostgresStore;
use super::address::{PostgresServers, prepared};
use super::error::unreachable;
use super::pooler::Pooler;
use super::settings::Settings;
use crate::connector::{Connector, Servers};
use crate::keeper::Keeper;
use crate::run::{SIGN_OF_LIFE, longest_answer, within};
use crate::trust::Trust;
use crate::{AddressSource, StoreError, TableName};

/// A connection that idled for longer is asked whether it still lives before it is used; a shorter rest is not worth the wait.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// How to reach a server.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Hosts and ports or sockets, user, password, database, TLS.
    servers: Arc<PostgresServers>,
    /// The source of the address, and the address; `None` for one that does not change.
    source: Option<(Arc<dyn AddressSource>, String)>,
    /// The application's own pool, for its transactions; `None` for one that the store opens.
    callers: Option<PgPool>,
    /// The table. Default `outbox_event`; without a schema of its own, where the user's `search_path` finds it first.
    pub table: TableName,
    /// Most connections for what the host does by itself: claims, outcomes, what people ask. Default 8; at least 1. One more is
    /// kept for leases.
    pub connections: u32,
    /// Most connections for transactions that the application begins through the store. Default 10; at least 1. None is opened
    /// before it is needed, and none at all where the application has given its own pool.
    pub transactions: u32,
    /// How long a call waits for a connection of its pool. Default 30 s.
    pub acquire_timeout: Duration,
    /// How long one statement of the host may take before the server ends it. Default 30 s; zero for any time. The
    /// application's own transactions and the steps of the schema are not bound by it.
    pub statement_timeout: Duration,
    /// How long one statement of the host waits for a lock before the server ends it. Default 2 s; zero for any time.
    pub lock_timeout: Duration,
}

impl PostgresOptions {
    /// The server of an address: `postgres://user:password@host:5432/database`, with the parameters of PostgreSQL's own
    /// programs after `?`: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `host`, `options`, … What the address does not say is
    /// taken from the driver's usual places, `PGHOST` and its like and `~/.pgpass`.
    ///
    /// Several hosts, as in `postgres://user@a:5432,b:5432/database`, are tried in their order whenever a connection is opened.
    /// `target_session_attrs` says which of them is used: `any`, `read-write`, `primary`. Default for several hosts: `read-write`.
    ///
    /// # Errors
    /// When the address is no PostgreSQL address, or has a parameter without effect; the error does not show its password.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Ok(Self::with_servers(PostgresServers::of_url(url)?))
    }

    /// As [`from_url`](Self::from_url), with an address that is read from `source` now, and again while the store is used.
    ///
    /// # Errors
    /// As [`from_url`](Self::from_url), and when the address cannot be read.
    pub async fn from_source(source: Arc<dyn AddressSource>) -> Result<Self, StoreError> {
        let url = source.address(false).await.map_err(StoreError::AddressUnread)?;
        Ok(Self { source: Some((source, url.clone())), ..Self::from_url(&url)? })
    }

    /// A server as the driver is told of it, with the defaults of the outbox.
    ///
    /// The statements of the host are not logged by the driver, and its sessions are named `outbox` unless these options name them.
    #[must_use]
    pub fn from_options(connect: PgConnectOptions) -> Self {
        Self::with_servers(PostgresServers::one(prepared(connect)))
    }

    fn with_servers(servers: PostgresServers) -> Self {
        Self {
            servers: Arc::new(servers),
            source: None,
            callers: None,
            table: TableName::default(),
            connections: 8,
            transactions: 10,
            acquire_timeout: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(2),
        }
    }

    /// The application's own pool, for the transactions that it begins through the store. See [`PostgresStore::new`].
    #[must_use]
    pub fn from_pool(pool: PgPool) -> Self {
        let connect = PgConnectOptions::clone(&pool.connect_options());
        Self { callers: Some(pool), ..Self::from_options(connect) }
    }

    /// Another table.
    #[must_use]
    pub fn table(mut self, table: TableName) -> Self {
        self.table = table;
        self
    }

    /// Another number of connections for what the host does by itself; 0 is taken as 1.
    #[must_use]
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// How many connections a host may open in all: those for itself, those for transactions, the one for leases, the one of
    /// its session, and the one on which it hears other hosts, which each call of
    /// [`NotifyStore::listen`](crate::NotifyStore::listen) opens anew. Those of the application's own pool are not
    /// counted.
    #[must_use]
    pub fn most_connections(&self) -> u32 {
        let transactions = if self.callers.is_some() { 0 } else { self.transactions.max(1) };
        self.connections.max(1).saturating_add(transactions).saturating_add(3)
    }

    /// Which server and database, for messages: never with a password.
    fn database(&self) -> String {
        let first = self.servers.first();
        let hosts: Vec<String> = self.servers.each().iter().map(PostgresServers::label).collect();
        let user = first.get_username();
        let database = first.get_database().unwrap_or(user);
        format!("postgres://{user}@{}/{database}", hosts.join(","))
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("database", &self.database())
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// The outbox in the database of a pool that the application has. Connects nothing yet; must be called within a tokio runtime.
    ///
    /// Transactions that are begun through the outbox come from this pool. The host does its own work on other connections to
    /// the same server, at most eleven: eight for claims and outcomes, one for leases, one for its session, one on which it hears
    /// other hosts. They have limits and plan settings that an application would not want, and a lease must be renewed though the
    /// pool is used up. Fewer are had by [`from_pool`](PostgresOptions::from_pool) and [`connect_with`](Self::connect_with). Whatever the
    /// pool itself tells its sessions after they are opened, such as a `search_path`, these connections do not know: put it
    /// into the pool's connect options, or name the schema with the [table](PostgresOptions::table).
    ///
    /// ```no_run
    /// # mod outbox { pub use outbox_store::PostgresStore; pub use sqlx; pub mod store { pub use outbox_store::postgres; } }
    /// use outbox::PostgresStore;
    /// use outbox::sqlx::PgPool;
    /// use outbox::store::postgres::PostgresOptions;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PgPool::connect("postgres://shop@db.internal/shop").await?;
    /// let store = PostgresStore::new(pool.clone());
    /// // With fewer connections of the host's own:
    /// let store = PostgresStore::connect_with(PostgresOptions::from_pool(pool).connections(4)).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self::lazy(PostgresOptions::from_pool(pool))
    }

    /// Connects to the server of an address; see [`PostgresOptions::from_url`].
    ///
    /// # Errors
    /// See [`PostgresStore::connect_with`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(PostgresOptions::from_url(url)?).await
    }

    /// Connects once, so that what is wrong shows at once; further connections are opened when they are needed, and again by
    /// themselves when they are lost.
    ///
    /// # Errors
    /// When the server does not answer, refuses the user, or has no such database.
    pub async fn connect_with(options: PostgresOptions) -> Result<Self, StoreError> {
        // A pool repeats refused connections until its timeout: the first one is made without it, and tells why at once.
        let store = Self::lazy(options);
        let first = store.connector.connect().await;
        let first = first.map_err(|error| unreachable(store.database.to_string(), error))?;
        let found = store.pooler.find_by(first, &store.connector).await;
        found.map_err(|error| unreachable(store.database.to_string(), error))?;
        Ok(store)
    }

    fn lazy(options: PostgresOptions) -> Self {
        let trust = Arc::new(Trust::new());
        let settings = Arc::new(Settings::new(options.statement_timeout, options.lock_timeout));
        let pooler = Arc::new(Pooler::new(&settings));
        let connector = Arc::new(Connector::new(options.servers.clone(), options.source.clone()));
        let of_host = |most| host_pool(&options, most, &trust, &pooler, &settings, &connector);
        let host = of_host(options.connections.max(1)).connect_lazy_with(connector.current());
        // Leases are renewed on a connection of their own: when all others are busy, it matters most.
        let keeper = Arc::new(Keeper::new(of_host(1), connector.current()));
        let database = options.database().into();
        let is_lent = options.callers.is_some();
        let callers = options.callers.clone().unwrap_or_else(|| callers_pool(&options, &trust, &connector));
        Self {
            host,
            keeper,
            callers,
            is_lent,
            connector,
            table: options.table,
            database,
            trust,
            pooler,
            settings,
            patience: None,
            longest: longest_answer(options.statement_timeout),
            keeps: false,
        }
    }
}

fn callers_pool(options: &PostgresOptions, trust: &Arc<Trust>, connector: &Arc<Connector<PostgresServers>>) -> PgPool {
    let (trust, of_connector) = (trust.clone(), connector.clone());
    PgPoolOptions::new()
        .max_connections(options.transactions.max(1))
        .acquire_timeout(options.acquire_timeout)
        .before_acquire(move |_, met| {
            let trusted = trust.holds_for(met.age);
            Box::pin(async move { Ok(trusted) })
        })
        .after_connect(move |connection, _| {
            let servers = of_connector.servers();
            Box::pin(async move { servers.check(connection).await })
        })
        .connect_lazy_with(connector.current())
}

/// For statements of the host itself.
fn host_pool(
    options: &PostgresOptions,
    most: u32,
    trust: &Arc<Trust>,
    pooler: &Arc<Pooler>,
    settings: &Arc<Settings>,
    connector: &Arc<Connector<PostgresServers>>,
) -> PgPoolOptions {
    let (trust, trust_of_returned) = (trust.clone(), trust.clone());
    let (pooler, settings, connector) = (pooler.clone(), settings.clone(), connector.clone());
    // A host that does not answer gives way to the next.
    let acquire_timeout =
        if options.servers.is_one() { options.acquire_timeout } else { options.acquire_timeout.min(SIGN_OF_LIFE) };
    PgPoolOptions::new()
        .max_connections(most)
        .acquire_timeout(acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(move |connection, rest| {
            let trusted = trust.holds_for(rest.age);
            Box::pin(async move {
                if !trusted {
                    return Ok(false);
                }
                if rest.idle_for > TRUSTED_FOR {
                    within(SIGN_OF_LIFE, connection.ping()).await?;
                }
                Ok(true)
            })
        })
        .after_release(move |_, met| {
            // Whoever waited for an answer in vain gives back a connection that would be tested for ever.
            let trusted = trust_of_returned.holds_for(met.age);
            Box::pin(async move { Ok(trusted) })
        })
        .after_connect(move |connection, _| {
            let (settings, pooler, servers) = (settings.clone(), pooler.clone(), connector.servers());
            Box::pin(async move {
                servers.check(connection).await?;
                // What would be set there, others of its users would meet.
                if pooler.is_present() {
                    return Ok(());
                }
                settings.set(connection).await
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_of_a_host_are_counted() {
        let options = PostgresOptions::from_url("postgres://db/shop").expect("good");

        assert_eq!(options.most_connections(), 21);
        assert_eq!(options.connections(0).most_connections(), 14);
    }

    #[tokio::test]
    async fn a_host_beside_a_services_own_pool_opens_eleven() {
        let pool = PgPoolOptions::new().connect_lazy("postgres://joe:s3cret@db/shop").expect("good");

        let options = PostgresOptions::from_pool(pool);

        assert_eq!((options.most_connections(), options.database().as_str()), (11, "postgres://joe@db:5432/shop"));
    }

    #[tokio::test]
    async fn no_call_waits_longer_for_a_connection_than_it_was_given() {
        // The pool itself would repeat a refused connection for 30 s.
        let store = PostgresStore::lazy(PostgresOptions::from_url("postgres://127.0.0.1:1/shop").expect("good"));
        let store = PostgresStore { patience: Some(Duration::from_millis(100)), ..store };

        let asked = tokio::time::timeout(Duration::from_secs(10), store.connection("look")).await;

        let error = asked.expect("it does not wait for the pool").expect_err("nobody listens there");
        assert!(error.is_transient(), "{error}");
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "mysql://joe:s3cret@db/shop",
            "postgres://joe:s3cret@db:x/shop",
            "postgres://joe:s3@cret@db:5432x/shop?password=s3cret&sslmode=nonsense",
            "postgres://joe@db/shop?password=s3cret&sslmode=nonsense",
        ] {
            let error = format!("{:?}", PostgresOptions::from_url(url).expect_err(url));
            assert!(!error.contains("cret"), "{error}");
        }
        let options = PostgresOptions::from_url("postgresql://joe:s3cret@db/shop?sslmode=require").expect("good");
        assert_eq!(options.database(), "postgres://joe@db:5432/shop");
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
