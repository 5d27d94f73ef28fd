//! Which server the connections of a store are opened to, and with which login.
//!
//! The driver's pool opens its connections to one server with one password. When that fails, or takes long, the connector tries all
//! hosts of the address in their order, with a password that it has read again, and aims the pool at the server that it found.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, Connection, Database, Pool};

use super::address::without_login;
use super::{AddressSource, StoreError, hide_password};

/// How long a server may take to answer, if the address has no other. A server of another kind waits for the client to begin, and
/// closes the connection only after a minute.
const ONLY_HOST: Duration = Duration::from_secs(10);
/// The same for each host of several.
const EACH_HOST: Duration = Duration::from_secs(3);
/// How long a pool may take to give a connection before the other hosts are tried.
const SLOW: Duration = Duration::from_millis(500);
/// How often the address is read again while connections can be opened.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The least time between two searches.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

pub(super) type ConnectionOf<S> = <<S as Servers>::Database as Database>::Connection;
pub(super) type OptionsOf<S> = <ConnectionOf<S> as Connection>::Options;

/// The servers of an address.
pub(super) trait Servers: Sized + Send + Sync + 'static {
    type Database: Database;

    /// Reads an address.
    fn of_url(url: &str) -> Result<Self, StoreError>;

    /// How to connect to each of them, in the order in which they are tried. At least one.
    fn each(&self) -> &[OptionsOf<Self>];

    /// A server, for messages.
    fn label(server: &OptionsOf<Self>) -> String;

    /// Whether a server has refused the user or the password.
    fn is_login_refused(error: &sqlx::Error) -> bool;

    /// Whether another host may answer where this one did not.
    fn may_be_elsewhere(error: &sqlx::Error) -> bool;

    /// Fails if the server is not of the kind that the address asks for.
    fn check(&self, connection: &mut ConnectionOf<Self>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Why a server of several takes no writes although the address allows it. `None` if it takes writes.
    fn obstacle(
        &self,
        _connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<Option<&'static str>, sqlx::Error>> + Send {
        std::future::ready(Ok(None))
    }
}

/// Opens connections, and aims pools.
pub(super) struct Connector<S: Servers> {
    /// `None` for an address that does not change.
    source: Option<Arc<dyn AddressSource>>,
    /// Whether there is one server with one login: then nothing is searched for.
    is_fixed: bool,
    state: Mutex<State<S>>,
    /// Held while the hosts are tried; the time of the last search.
    search: tokio::sync::Mutex<Option<Instant>>,
    /// Held while the address is read although nothing has failed.
    reading: tokio::sync::Mutex<()>,
}

struct State<S> {
    servers: Arc<S>,
    /// The index of the server that new connections are opened to.
    current: usize,
    /// Counts the changes of the two above.
    version: u64,
    /// As it was read from the source.
    address: String,
    read_at: Instant,
    /// Whether the last try to read it failed.
    is_unread: bool,
    /// The index of the server that took no writes when a connection was opened to it last; `None` if the server in use takes writes.
    takes_no_writes: Option<usize>,
}

impl<S: Servers> Connector<S> {
    /// `source` comes with the address that was read from it.
    pub(super) fn new(servers: Arc<S>, source: Option<(Arc<dyn AddressSource>, String)>) -> Self {
        let (source, address) = source.map_or((None, String::new()), |(source, address)| (Some(source), address));
        let is_fixed = source.is_none() && servers.each().len() == 1;
        let state = State {
            servers,
            current: 0,
            version: 0,
            address,
            read_at: Instant::now(),
            is_unread: false,
            takes_no_writes: None,
        };
        Self {
            source,
            is_fixed,
            state: Mutex::new(state),
            search: tokio::sync::Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// How the next connection is opened.
    pub(super) fn current(&self) -> OptionsOf<S> {
        let state = self.lock();
        state.servers.each()[state.current].clone()
    }

    pub(super) fn servers(&self) -> Arc<S> {
        self.lock().servers.clone()
    }

    /// Opens a connection to the first host that answers and is of the right kind. If none does, tries again with the address read anew.
    ///
    /// # Errors
    /// The driver's own; with several hosts, what each of them answered.
    pub(super) async fn connect(&self) -> Result<ConnectionOf<S>, sqlx::Error> {
        match self.connect_to_any().await {
            Err(error) if self.read_again(S::is_login_refused(&error)).await => self.connect_to_any().await,
            connected => connected,
        }
    }

    async fn connect_to_any(&self) -> Result<ConnectionOf<S>, sqlx::Error> {
        let servers = self.servers();
        let each = servers.each();
        let longest = if each.len() == 1 { ONLY_HOST } else { EACH_HOST };
        // The one that is in use first: while it answers, all connections are to one server.
        let first = self.lock().current.min(each.len() - 1);
        let mut answers = Vec::new();
        for (index, server) in each.iter().enumerate().cycle().skip(first).take(each.len()) {
            let connecting = async {
                let mut connection = server.connect().await?;
                servers.check(&mut connection).await?;
                let obstacle = if each.len() > 1 { servers.obstacle(&mut connection).await? } else { None };
                Ok((connection, obstacle))
            };
            match tokio::time::timeout(longest, connecting).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok((connection, obstacle)) => {
                    self.use_server(&servers, index);
                    self.log_obstacle(&servers, index, obstacle);
                    return Ok(connection);
                }
                Err(error) if each.len() == 1 || !S::may_be_elsewhere(&error) => return Err(error),
                Err(sqlx::Error::PoolTimedOut) => answers.push(format!("{}: no answer", S::label(server))),
                Err(error) => answers.push(format!("{}: {error}", S::label(server))),
            }
        }
        Err(std::io::Error::new(std::io::ErrorKind::NotConnected, answers.join("; ")).into())
    }

    /// Asks a pool for a connection, or for a transaction. Aims the pool at another server if the current one gives none.
    ///
    /// The wait is boxed. Unboxed, it is part of every statement's future, which then exceeds the compiler's limit of 128 nested types.
    pub(super) async fn ask_pool<T, F: Future<Output = Result<T, sqlx::Error>>>(
        self: &Arc<Self>,
        pool: Pool<S::Database>,
        ask: impl Fn(Pool<S::Database>) -> F,
    ) -> Result<T, sqlx::Error> {
        if self.is_fixed { Box::pin(ask(pool)).await } else { Box::pin(self.ask_changing(pool, ask)).await }
    }

    async fn ask_changing<T, F: Future<Output = Result<T, sqlx::Error>>>(
        self: &Arc<Self>,
        pool: Pool<S::Database>,
        ask: impl Fn(Pool<S::Database>) -> F,
    ) -> Result<T, sqlx::Error> {
        if self.is_due() {
            // Apart from this call, which a slow command or file would hold up.
            let this = self.clone();
            tokio::spawn(async move {
                if let Ok(_reading) = this.reading.try_lock() {
                    this.read_again(false).await;
                }
            });
        }
        let version = self.aim(&pool);
        // A pool tries one server until its time is over, with the options that it had when it began.
        let searching = async {
            loop {
                tokio::time::sleep(SLOW).await;
                let most = pool.options().get_max_connections();
                // All of them are in use: no other server would help.
                let is_busy = most > 1 && pool.size() >= most;
                if !is_busy && self.find(version).await.is_ok_and(|is_other| is_other) {
                    return;
                }
            }
        };
        let asked: Option<Result<T, sqlx::Error>> = tokio::select! {
            biased;
            asked = ask(pool.clone()) => Some(asked),
            () = searching => None,
        };
        match asked {
            Some(Ok(asked)) => Ok(asked),
            Some(Err(sqlx::Error::PoolClosed)) => Err(sqlx::Error::PoolClosed),
            None => {
                self.aim(&pool);
                ask(pool).await
            }
            Some(Err(error)) => {
                if !self.find(version).await? {
                    return Err(error);
                }
                self.aim(&pool);
                ask(pool).await
            }
        }
    }

    /// Lets a pool open its next connections to the current server. Returns the version of that.
    fn aim(&self, pool: &Pool<S::Database>) -> u64 {
        let (version, options) = {
            let state = self.lock();
            (state.version, (state.version > 0).then(|| state.servers.each()[state.current].clone()))
        };
        if let Some(options) = options {
            pool.set_connect_options(options);
        }
        version
    }

    /// Looks for a server that can be used. Returns whether another than that of `version` is used now, or another login.
    async fn find(&self, version: u64) -> Result<bool, sqlx::Error> {
        let mut searched_at = self.search.lock().await;
        let is_recent = searched_at.is_some_and(|at| at.elapsed() < SEARCH_EVERY);
        if self.lock().version == version && !is_recent {
            let found = self.connect().await;
            *searched_at = Some(Instant::now());
            // That it can be closed politely or not changes nothing.
            let _ = found?.close().await;
        }
        Ok(self.lock().version != version)
    }

    fn use_server(&self, servers: &Arc<S>, index: usize) {
        let mut state = self.lock();
        if Arc::ptr_eq(&state.servers, servers) && state.current != index {
            state.current = index;
            state.version += 1;
            let server = S::label(&servers.each()[index]);
            tracing::info!(target: "outbox::store", server, "new connections are opened to another server");
        }
    }

    /// Logs once that the server in use takes no writes.
    fn log_obstacle(&self, servers: &Arc<S>, index: usize, obstacle: Option<&'static str>) {
        let takes_no_writes = obstacle.map(|_| index);
        if std::mem::replace(&mut self.lock().takes_no_writes, takes_no_writes) == takes_no_writes {
            return;
        }
        if let Some(reason) = obstacle {
            let server = S::label(&servers.each()[index]);
            tracing::warn!(
                target: "outbox::store",
                server,
                reason,
                "the server takes no writes, but target_session_attrs=any or primary allows it"
            );
        }
    }

    /// Whether the source should be asked again, although nothing has failed. True at most once per interval.
    fn is_due(&self) -> bool {
        let mut state = self.lock();
        let is_due = self.source.is_some() && state.read_at.elapsed() >= LOOK_EVERY;
        if is_due {
            state.read_at = Instant::now();
        }
        is_due
    }

    /// Reads the address again. Returns whether it has changed.
    async fn read_again(&self, is_refused: bool) -> bool {
        let Some(source) = &self.source else { return false };
        let read = match source.address(is_refused).await {
            Ok(address) if self.lock().address == address => {
                if std::mem::take(&mut self.lock().is_unread) {
                    tracing::info!(target: "outbox::store", "the database address can be read again");
                }
                return false;
            }
            // Connections to both would be in use, and events that are in both would be delivered twice.
            Ok(address) if hide_password(&without_login(&address)) != hide_password(&without_login(&self.lock().address)) => {
                Err("it names another server or database than before; restart the host to use it".to_owned())
            }
            Ok(address) => S::of_url(&address).map(|servers| (address, servers)).map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        let mut state = self.lock();
        state.read_at = Instant::now();
        match read {
            Ok((address, servers)) => {
                *state = State {
                    servers: Arc::new(servers),
                    version: state.version + 1,
                    address,
                    is_unread: false,
                    takes_no_writes: None,
                    ..*state
                };
                tracing::info!(target: "outbox::store", "the database address was read again and has changed");
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut state.is_unread, true) {
                    tracing::warn!(target: "outbox::store", error, "the database address cannot be read again; the last one stays in use");
                }
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
