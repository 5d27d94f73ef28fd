//! Opening the file, and what can go wrong with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outbox_event::time::{Clock, system_clock};
use percent_encoding::percent_decode_str;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::error::{AUTH, BUSY, CANTOPEN, CORRUPT, FULL, LOCKED, NOTADB, PERM, READONLY, code};
use super::opened_file::{OpenedFile, with_suffix};
use super::{OwnPools, SqliteStore};
use crate::{StoreError, TableName};

/// How long a statement waits for another program's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers never wait for the writer in WAL mode; more of them only cost memory.
const READERS: u32 = 4;
/// How long a call waits for a connection. A business transaction may hold the one that writes for long; a poll that gives up would
/// only be tried again.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// A whole claimed batch passes from SQLite's thread without waiting for its reader.
const ROW_BUFFER: usize = 1024;

/// How to open a file.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The file.
    pub file: PathBuf,
    /// Whether to make the file when it is not there. Default false: a misspelt name must not become a new, empty outbox.
    pub create: bool,
    /// The table. Default `outbox_event`.
    pub table: TableName,
    /// What decides what is due. Default the system's clock.
    pub clock: Arc<dyn Clock>,
    /// How long a statement waits for a lock that another program holds. Default 5 s. On a pool of the application, that pool's
    /// setting counts.
    pub busy_timeout: Duration,
    /// What else the driver is told of the file.
    connect: SqliteConnectOptions,
    /// The application's own pool, on which everything is written; `None` for one connection of the store's own.
    pool: Option<SqlitePool>,
}

impl SqliteOptions {
    /// A file, with the defaults.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            create: false,
            table: TableName::default(),
            clock: system_clock(),
            busy_timeout: BUSY_TIMEOUT,
            connect: SqliteConnectOptions::new(),
            pool: None,
        }
    }

    /// A file as the driver is told of it, with the defaults of the outbox. The fields of this struct and the settings that the
    /// outbox relies on (WAL, `synchronous`, `foreign_keys`) go before what these options say; keys, extensions and the
    /// like are kept.
    #[must_use]
    pub fn from_options(connect: SqliteConnectOptions) -> Self {
        Self { connect: connect.clone(), ..Self::new(connect.get_filename()) }
    }

    /// The application's own pool, on which the outbox writes as well. See [`SqliteStore::new`].
    #[must_use]
    pub fn from_pool(pool: SqlitePool) -> Self {
        let connect = SqliteConnectOptions::clone(&pool.connect_options());
        Self { pool: Some(pool), ..Self::from_options(connect) }
    }

    /// How many connections a store may open in all: the one that writes, unless the application has given its own pool, and those
    /// that read.
    #[must_use]
    pub fn most_connections(&self) -> u32 {
        if self.pool.is_some() { READERS } else { 1 + READERS }
    }

    /// The file of an address: `sqlite:outbox.db`, `sqlite:///var/lib/outbox.db`, with `?mode=rwc` to make it. As in every
    /// address, `%20` stands for a space, `%3F` for a `?` and `%25` for a `%`.
    ///
    /// # Errors
    /// When the address is no SQLite address, or names a database in memory.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let wrong = |hint: &str| StoreError::Url { url: url.to_owned(), hint: hint.to_owned() };
        let rest = url.strip_prefix("sqlite:").ok_or_else(|| wrong("write it like sqlite:outbox.db"))?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == ":memory:" {
            return Err(wrong("an outbox in memory would lose its events; name a file, like sqlite:outbox.db"));
        }
        let path = percent_decode_str(path).decode_utf8().map_err(|_| wrong("its %-escapes are not UTF-8"))?;
        let mut options = Self::new(&*path);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair {
                "mode=rwc" => options.create = true,
                "mode=rw" => options.create = false,
                _ => return Err(wrong("the only option after `?` is mode=rw or mode=rwc")),
            }
        }
        Ok(options)
    }

    /// Makes the file when it is not there.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Another table.
    #[must_use]
    pub fn table(mut self, table: TableName) -> Self {
        self.table = table;
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

impl SqliteStore {
    /// The outbox in the file of a pool that the application has. Opens nothing yet; must be called within a tokio runtime.
    ///
    /// SQLite has one writer at a time, so the outbox writes on this pool too: a second pool would fight it for the lock of the
    /// file. Best is a pool of **one** connection for all that is written (`max_connections(1)`), in which everybody waits for
    /// his turn, and another pool for what is read; with more connections, SQLite lets those wait that come late, for as long
    /// as the pool's `busy_timeout` says. Set `journal_mode` to WAL, or readers and the writer lock each other out.
    /// After a failed COMMIT, the driver may refuse to begin a transaction on its connection. The outbox then replaces this connection.
    ///
    /// The host reads on at most four connections of its own, opened as the pool opens its own. A database in memory
    /// (`sqlite::memory:`) is read on the pool: there is no other way to it, and its events are gone with it.
    ///
    /// ```
    /// # mod outbox { pub use outbox_store::SqliteStore; pub use sqlx; }
    /// use outbox::SqliteStore;
    /// use outbox::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), outbox::sqlx::Error> {
    /// # let directory = tempfile::tempdir().expect("a directory can be made");
    /// # let file = directory.path().join("shop.db");
    /// let connect = SqliteConnectOptions::new().filename(file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    /// let pool = SqlitePoolOptions::new().max_connections(1).connect_with(connect).await?;
    /// let store = SqliteStore::new(pool.clone());
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(pool: SqlitePool) -> Self {
        let options = SqliteOptions::from_pool(pool.clone());
        Self::on_pool(options, pool)
    }

    fn on_pool(options: SqliteOptions, pool: SqlitePool) -> Self {
        let is_in_memory = is_in_memory(&options.connect);
        let opened_file = Arc::new(if is_in_memory { OpenedFile::default() } else { OpenedFile::of(&options.file) });
        let connect = options.connect.row_buffer_size(ROW_BUFFER);
        let readers = if is_in_memory { pool.clone() } else { readers(connect, &opened_file) };
        let pools = if is_in_memory { Vec::new() } else { vec![readers.clone()] };
        let own_pools = Arc::new(OwnPools { pools, file: opened_file.clone() });
        let file = Arc::from(options.file.display().to_string());
        Self { writer: pool, readers, own_pools, table: options.table, clock: options.clock, file, opened_file }
    }

    /// Opens the file of an address; see [`SqliteOptions::from_url`].
    ///
    /// # Errors
    /// See [`SqliteStore::open_with`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(SqliteOptions::from_url(url)?).await
    }

    /// Opens the file and takes one connection, so that what is wrong with it shows at once.
    ///
    /// # Errors
    /// When the file is missing (and is not to be made), cannot be opened, is locked, or is no database.
    pub async fn open_with(options: SqliteOptions) -> Result<Self, StoreError> {
        if let Some(pool) = options.pool.clone() {
            // Taken and given back: what is wrong with it shows now.
            pool.acquire().await.map_err(|error| unreachable(&options.file, error))?;
            return Ok(Self::on_pool(options, pool));
        }
        check_place(&options)?;
        let connect = options
            .connect
            .filename(&options.file)
            .create_if_missing(options.create)
            .journal_mode(SqliteJournalMode::Wal)
            // FULL: a commit that was acknowledged survives a power cut.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(options.busy_timeout)
            .foreign_keys(true)
            .row_buffer_size(ROW_BUFFER)
            .pragma("cache_size", "-16000")
            .pragma("journal_size_limit", "67108864")
            .pragma("temp_store", "MEMORY");
        let opened_file = Arc::new(OpenedFile::of(&options.file));
        let writer = never_idle(&opened_file)
            .max_connections(1)
            .connect_with(connect.clone())
            .await
            .map_err(|error| unreachable(&options.file, error))?;
        // Large payloads fill every cache that there is, and the system keeps the file's pages too.
        let readers = readers(connect.pragma("cache_size", "-4000"), &opened_file);
        let own_pools = Arc::new(OwnPools { pools: vec![readers.clone(), writer.clone()], file: opened_file.clone() });
        let file = Arc::from(options.file.display().to_string());
        opened_file.check()?;
        Ok(Self { writer, readers, own_pools, table: options.table, clock: options.clock, file, opened_file })
    }
}

/// Connections that stay open once they are.
fn never_idle(file: &Arc<OpenedFile>) -> SqlitePoolOptions {
    let file = file.clone();
    let options = SqlitePoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT);
    options.idle_timeout(None).max_lifetime(None).test_before_acquire(false).after_connect(move |connection, _| {
        let file = file.clone();
        Box::pin(async move {
            // Only what reads from the file opens its -wal.
            sqlx::query("SELECT count(*) FROM sqlite_schema").execute(connection).await?;
            // A connection to another file would stay in the pool when ours is put back.
            file.check().map_err(|moved| sqlx::Error::Io(std::io::Error::other(moved)))?;
            file.note_wal();
            Ok(())
        })
    })
}

fn readers(connect: SqliteConnectOptions, file: &Arc<OpenedFile>) -> SqlitePool {
    never_idle(file).max_connections(READERS).connect_lazy_with(connect)
}

/// Whether another connection would open another database. The driver tells only by the name that it gives to `sqlite::memory:`.
fn is_in_memory(connect: &SqliteConnectOptions) -> bool {
    let file = connect.get_filename().to_string_lossy();
    file.is_empty() || file == ":memory:" || file.starts_with("file:sqlx-in-memory-")
}

/// Finds what SQLite would only call "unable to open database file".
fn check_place(options: &SqliteOptions) -> Result<(), StoreError> {
    let file = &options.file;
    let unreachable = |why: String| StoreError::Unreachable { database: file.display().to_string(), why, source: None };
    if file.is_dir() {
        return Err(unreachable("it is a directory; name a file in it".to_owned()));
    }
    let log = with_suffix(file, "-wal");
    if !file.exists() && log.exists() {
        // A new file would be opened with the log of the old one, and what stands in that would be lost.
        return Err(unreachable(format!(
            "the file does not exist, but {} does, which belongs to it: it was moved or deleted, perhaps under a program that still \
             writes to it. Stop every program that uses it, then put the file back beside its -wal; or delete the -wal and the -shm \
             too, if the events in them may be lost",
            log.display()
        )));
    }
    if !file.exists() && !options.create {
        return Err(unreachable("the file does not exist; run `outbox migrate up` to make it, or check the path".to_owned()));
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(unreachable(format!("the directory {} does not exist; make it first", parent.display())));
    }
    Ok(())
}

fn unreachable(file: &Path, source: sqlx::Error) -> StoreError {
    let why = match code(&source).map(|code| code & 0xff) {
        Some(BUSY | LOCKED) => "another program holds its lock; stop that program or let it finish",
        Some(READONLY) => {
            "the file or its directory is read-only; make both writable for this user (WAL needs to write beside it)"
        }
        Some(CANTOPEN | PERM | AUTH) => "this user may not open it; check the owner and the mode of the file and its directory",
        Some(CORRUPT | NOTADB) => "it is not a SQLite database, or it is damaged; name another file or restore it",
        Some(FULL) => "no space is left beside it",
        _ => "see the cause",
    };
    StoreError::Unreachable { database: file.display().to_string(), why: why.to_owned(), source: Some(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_address_is_decoded() {
        let file = |url: &str| SqliteOptions::from_url(url).map(|options| options.file);
        assert_eq!(file("sqlite:my%20shop%3F.db?mode=rwc").expect("good"), Path::new("my shop?.db"));
        assert_eq!(file("sqlite:///var/lib/100%25.db").expect("good"), Path::new("/var/lib/100%.db"));
        assert_eq!(file("sqlite:100%.db").expect("good"), Path::new("100%.db"), "what is no escape stays");
        assert!(file("sqlite:%ff.db").expect_err("refused").to_string().contains("not UTF-8"));
    }
}
