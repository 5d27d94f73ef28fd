//! Connecting.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnectionMetadata;

use super::MySqlStore;
use super::address::{MySqlServers, prepared};
use super::error::{ABORTED, REFUSED_LOGIN, number};
use super::settings::{Session, Whose};
use crate::connector::{Connector, Servers};
use crate::error::is_of_tls;
use crate::keeper::Keeper;
use crate::run::{KEEPERS_LONGEST, SIGN_OF_LIFE, longest_answer, within};
use crate::trust::Trust;
use crate::{AddressSource, StoreError, TableName};

/// A connection that was idle for this long is tested before it is used.
const TRUSTED_FOR: Duration = Duration::from_secs(10);

/// How to reach a server.
#[derive(Clone)]
pub struct MySqlOptions {
    /// Host, port or socket, user, password, database, TLS.
    servers: Arc<MySqlServers>,
    /// The source of the address, and the address; `None` for one that does not change.
    source: Option<(Arc<dyn AddressSource>, String)>,
    /// The application's own pool, for its transactions; `None` for one that the store opens.
    callers: Option<MySqlPool>,
    /// The table. Default `outbox_event`, in the database of the address.
    pub table: TableName,
    /// Most connections for claims, outcomes, writers and questions; one more is kept for leases, and as many for transactions
    /// that the application begins through the store. None is opened before it is needed. Default 10; at least 1.
    pub connections: u32,
    /// How long a call waits for a free connection of its pool. Default 30 s.
    pub acquire_timeout: Duration,
    /// How long a statement of the host waits for a lock that somebody else holds. Default 2 s; cut to whole seconds, at least
    /// one. The application's own transactions are bound by neither this nor the next.
    pub lock_timeout: Duration,
    /// How long the server works on one statement (MySQL: on one that reads); zero for any time. Default 60 s.
    pub statement_timeout: Duration,
}

impl MySqlOptions {
    /// The server and the database of an address: `mysql://user:password@host:3306/shop`, or `mariadb://…`. After `?` the
    /// driver's own parameters, such as `ssl-mode=VERIFY_IDENTITY`, `ssl-ca=FILE` or `socket=FILE`, and `enable-cleartext-plugin=true`
    /// for a server that checks the password elsewhere.
    ///
    /// # Errors
    /// When the address has another scheme, no database, several hosts, or a parameter without effect. The password is never
    /// shown.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Ok(Self::with_servers(MySqlServers::of_url(url)?))
    }

    /// As [`from_url`](Self::from_url), with an address that is read from `source` now, and again while the store is used.
    ///
    /// # Errors
    /// As [`from_url`](Self::from_url), and when the address cannot be read.
    pub async fn from_source(source: Arc<dyn AddressSource>) -> Result<Self, StoreError> {
        let url = source.address(false).await.map_err(StoreError::AddressUnread)?;
        Ok(Self { source: Some((source, url.clone())), ..Self::from_url(&url)? })
    }

    /// A server and a database as the driver is told of them, with the defaults of the outbox. What the driver would do to new
    /// sessions (`timezone`, `pipes_as_concat`) does not concern those of the store.
    #[must_use]
    pub fn from_options(connect: MySqlConnectOptions) -> Self {
        Self::with_servers(MySqlServers::one(prepared(connect)))
    }

    fn with_servers(servers: MySqlServers) -> Self {
        Self {
            servers: Arc::new(servers),
            source: None,
            callers: None,
            table: TableName::default(),
            connections: 10,
            acquire_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(60),
        }
    }

    /// The application's own pool, for the transactions that it begins through the store. See [`MySqlStore::new`].
    #[must_use]
    pub fn from_pool(pool: MySqlPool) -> Self {
        let connect = MySqlConnectOptions::clone(&pool.connect_options());
        Self { callers: Some(pool), ..Self::from_options(connect) }
    }

    /// Another table.
    #[must_use]
    pub fn table(mut self, table: TableName) -> Self {
        self.table = table;
        self
    }

    /// Another number of connections, beside the one for leases; 0 is taken as 1.
    #[must_use]
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// How many connections a host may open in all: its own, as many for transactions of the application unless it has given its
    /// own pool, the one for leases, and the one of its session.
    #[must_use]
    pub fn most_connections(&self) -> u32 {
        let pools = if self.callers.is_some() { 1 } else { 2 };
        self.connections.max(1).saturating_mul(pools).saturating_add(2)
    }
}

impl MySqlOptions {
    fn connect(&self) -> &MySqlConnectOptions {
        &self.servers.each()[0]
    }
}

impl std::fmt::Debug for MySqlOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlOptions")
            .field("database", &label(self.connect()))
            .field("table", &self.table)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl MySqlStore {
    /// The outbox in the database of a pool that the application has. Connects nothing yet; must be called within a tokio runtime.
    ///
    /// Transactions that are begun through the outbox come from this pool. The host does its own work on other connections to
    /// the same server, at most twelve: ten for claims and outcomes, one for leases, one for its session. They have an isolation
    /// level and limits that an application would not want, and a lease must be renewed though the pool is used up. Fewer are had by
    /// [`from_pool`](MySqlOptions::from_pool) and [`connect_with`](Self::connect_with).
    ///
    /// ```no_run
    /// # mod outbox { pub use outbox_store::MySqlStore; pub use sqlx; pub mod store { pub use outbox_store::mysql; } }
    /// use outbox::MySqlStore;
    /// use outbox::sqlx::MySqlPool;
    /// use outbox::store::mysql::MySqlOptions;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = MySqlPool::connect("mysql://shop@db.internal/shop").await?;
    /// let store = MySqlStore::new(pool.clone());
    /// // With fewer connections of the host's own:
    /// let store = MySqlStore::connect_with(MySqlOptions::from_pool(pool).connections(4)).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(pool: MySqlPool) -> Self {
        Self::lazy(MySqlOptions::from_pool(pool))
    }

    /// Connects to the server of an address; see [`MySqlOptions::from_url`].
    ///
    /// # Errors
    /// See [`MySqlStore::connect_with`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(MySqlOptions::from_url(url)?).await
    }

    /// Opens one session, so that what is wrong with the address or the server's settings shows at once; further ones are opened when
    /// they are needed.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses the user or the settings of a session, or does not know the database.
    pub async fn connect_with(options: MySqlOptions) -> Result<Self, StoreError> {
        // A pool retries a failed session until its timeout and drops the error, so the first one is opened without a pool.
        let store = Self::lazy(options);
        let opening = async {
            let mut first = store.connector.connect().await?;
            within(KEEPERS_LONGEST, store.session.begin(&mut first)).await?;
            Ok(first)
        };
        let first = opening.await.map_err(|error| unreachable(&store.database, error))?;
        // That it can be closed politely or not changes nothing.
        let _ = first.close().await;
        Ok(store)
    }

    fn lazy(options: MySqlOptions) -> Self {
        let most = options.connections.max(1);
        let trust = Arc::new(Trust::new());
        let connector = Arc::new(Connector::new(options.servers.clone(), options.source.clone()));
        let host = pool(&options, most, Whose::Host, &trust).connect_lazy_with(connector.current());
        let is_lent = options.callers.is_some();
        let callers = options
            .callers
            .clone()
            .unwrap_or_else(|| pool(&options, most, Whose::Callers, &trust).connect_lazy_with(connector.current()));
        // Leases are renewed on a connection of their own: when all others are busy, it matters most.
        let keeper = Arc::new(Keeper::new(pool(&options, 1, Whose::Host, &trust), connector.current()));
        let database = label(options.connect()).into();
        let longest = longest_answer(options.statement_timeout);
        let session = Session::new(Whose::Host, options.lock_timeout, options.statement_timeout);
        let table = options.table;
        Self {
            pool: host,
            callers,
            is_lent,
            keeper,
            connector,
            session,
            table,
            database,
            trust,
            patience: None,
            longest,
            keeps: false,
        }
    }
}

fn pool(options: &MySqlOptions, most: u32, whose: Whose, trust: &Arc<Trust>) -> MySqlPoolOptions {
    let (trust, trust_of_returned, session) =
        (trust.clone(), trust.clone(), Session::new(whose, options.lock_timeout, options.statement_timeout));
    MySqlPoolOptions::new()
        .max_connections(most)
        .acquire_timeout(options.acquire_timeout)
        .idle_timeout(Duration::from_secs(600))
        // The driver's own test would be a round trip before every statement.
        .test_before_acquire(false)
        .before_acquire(move |connection, met| {
            let trusted = trust.holds_for(met.age);
            Box::pin(async move { Ok(trusted && answers(connection, met).await) })
        })
        .after_release(move |_, met| {
            // Whoever waited for an answer in vain gives back a connection that would be tested for ever.
            let trusted = trust_of_returned.holds_for(met.age);
            Box::pin(async move { Ok(trusted) })
        })
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move { session.begin(connection).await })
        })
}

/// A connection that was idle for long may have been cut by something between us and the server, which nobody told us of.
async fn answers(connection: &mut MySqlConnection, met: PoolConnectionMetadata) -> bool {
    met.idle_for < TRUSTED_FOR || within(SIGN_OF_LIFE, connection.ping()).await.is_ok()
}

/// Which database, for messages: never with a password.
fn label(connect: &MySqlConnectOptions) -> String {
    let database = connect.get_database().unwrap_or_default();
    match connect.get_socket() {
        Some(socket) => format!("{database} at {}", socket.display()),
        None => format!("{database} at {}", MySqlServers::label(connect)),
    }
}

fn unreachable(database: &str, source: sqlx::Error) -> StoreError {
    let why = match number(&source) {
        Some(number) if REFUSED_LOGIN.contains(&number) => {
            "the server refuses this user or its password; check both, create the user, or unlock the account".to_owned()
        }
        Some(1044) => "this user may not use this database; see `outbox doctor --grants`".to_owned(),
        Some(1049) => "the server does not know this database; run: CREATE DATABASE … CHARACTER SET utf8mb4".to_owned(),
        Some(1040 | 1203 | 1226) => "the server gives this user no further connection; raise max_connections, or MAX_USER_CONNECTIONS of the user, or let others open fewer"
            .to_owned(),
        Some(ABORTED) => {
            "the server closes the connection of this user; correct its init_connect, which fails, or grant what that needs".to_owned()
        }
        Some(1130) => "the server lets nobody in from this host; create the user for it".to_owned(),
        _ => match &source {
            error if is_of_tls(error) => "no trusted TLS connection; give the certificate with ?ssl-ca=FILE".to_owned(),
            sqlx::Error::Io(error) => format!("{error}; check host and port, and whether the server runs"),
            sqlx::Error::PoolTimedOut => {
                "no answer in time; check host and port, and that a MySQL or MariaDB server listens there".to_owned()
            }
            _ => "see the cause".to_owned(),
        },
    };
    StoreError::Unreachable { database: database.to_owned(), why, source: Some(source) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store as _;

    #[tokio::test]
    async fn a_host_beside_a_services_own_pool_opens_twelve() {
        let pool = MySqlPoolOptions::new().connect_lazy("mysql://joe:s3cret@db/shop").expect("good");

        let options = MySqlOptions::from_pool(pool);

        assert_eq!((options.most_connections(), label(options.connect()).as_str()), (12, "shop at db:3306"));
        assert_eq!(MySqlOptions::from_url("mysql://db/shop").expect("good").most_connections(), 22);
    }

    #[tokio::test]
    async fn no_call_waits_longer_for_a_connection_than_it_was_given() {
        // The pool itself would repeat a refused connection for 30 s.
        let store = MySqlStore::lazy(MySqlOptions::from_url("mysql://127.0.0.1:1/shop").expect("good"));
        let store = store.connecting_within(Duration::from_millis(100)).expect("it has connections to wait for");

        let asked = tokio::time::timeout(Duration::from_secs(10), store.now()).await;

        let error = asked.expect("it does not wait for the pool").expect_err("nobody listens there");
        assert!(error.is_transient(), "{error}");
    }

    #[test]
    fn both_schemes_are_understood_and_a_password_is_never_shown() {
        for url in ["mysql://u:secret@db:3306/shop", "mariadb://u:secret@db/shop?ssl-mode=REQUIRED"] {
            let options = MySqlOptions::from_url(url).expect("good");
            assert_eq!(options.connect().get_database(), Some("shop"));
            assert!(!format!("{options:?}").contains("secret"));
        }
        for url in
            ["postgres://u:secret@db/shop", "mysql://u:secret@db:3306", "mysql://u:sec/ret@db:x/shop", "mysql://u:s@secret@db"]
        {
            let error = MySqlOptions::from_url(url).expect_err("refused").to_string();
            assert!(!error.contains("secret") && !error.contains("sec/ret"), "{error}");
        }
    }
}
