//! Finds the addresses of hosts, with a bound on the look-ups at once, of which one plugin has a part.
//!
//! The system's look-up cannot be cut off: where no server answers, it goes on for half a minute on a thread that others need
//! too. So it keeps its turn until it ends, whoever has gone meanwhile; a caller that is cut off while it waits for a turn no
//! longer waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Turns for the first look-up of each plugin: as many plugins must misuse theirs before another one waits.
const FIRST: usize = 16;
/// Turns for all further look-ups, those of all plugins together and those of one.
const FURTHER: usize = 16;
const OWN_FURTHER: usize = 3;

/// Finds the addresses of a host. One for all plugins; another one in tests.
pub(crate) trait Resolver: Send + Sync + 'static {
    /// All addresses of a host, best first.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
pub(super) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Why a host has no address.
#[derive(Debug)]
pub(super) enum LookupError {
    /// Others had all turns for too long: nobody has looked.
    NoTurn,
    /// The resolver's words.
    Failed(String),
}

type Found = Result<Vec<SocketAddr>, String>;

/// The look-ups of all plugins.
#[derive(Clone)]
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolver>,
    first: Arc<Semaphore>,
    further: Arc<Semaphore>,
}

/// The look-ups of one plugin.
pub(super) struct OwnLookups {
    all: Lookups,
    first: Arc<Semaphore>,
    further: Arc<Semaphore>,
    under_way: Arc<UnderWay>,
}

/// The look-ups that go on now, at most one for each turn: whoever asks for the same is answered with them.
#[derive(Default)]
struct UnderWay(Mutex<Vec<Lookup>>);

struct Lookup {
    host: String,
    port: u16,
    found: Shared<BoxFuture<'static, Found>>,
}

/// The right to look up one name: the plugin's own turn, and the one of all plugins.
type Turn = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Lookups {
    pub(crate) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, first: Arc::new(Semaphore::new(FIRST)), further: Arc::new(Semaphore::new(FURTHER)) }
    }

    /// The look-ups of one plugin.
    pub(super) fn of_plugin(&self) -> OwnLookups {
        let (first, further) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(OWN_FURTHER)));
        OwnLookups { all: self.clone(), first, further, under_way: Arc::default() }
    }
}

impl OwnLookups {
    /// All addresses of a host, best first. A look-up waits for its turn until `line_ends`.
    pub(super) async fn find(&self, host: &str, port: u16, line_ends: Instant) -> Result<Vec<SocketAddr>, LookupError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let under_way = self.under_way.find(host, port);
        let found = match under_way {
            Some(found) => found,
            None => {
                let turn = timeout_at(line_ends, self.turn()).await.map_err(|_| LookupError::NoTurn)?;
                self.begin(host, port, turn)
            }
        };
        found.await.map_err(LookupError::Failed)
    }

    async fn turn(&self) -> Turn {
        let first = pin!(take(&self.first, &self.all.first));
        let further = pin!(take(&self.further, &self.all.further));
        select(first, further).await.factor_first().0
    }

    /// Looks up a name in a task of its own, which keeps the turn.
    fn begin(&self, host: &str, port: u16, turn: Turn) -> Shared<BoxFuture<'static, Found>> {
        let mut under_way = self.under_way.lock();
        // Another caller may have had its turn first.
        if let Some(lookup) = under_way.iter().find(|lookup| lookup.is_of(host, port)) {
            return lookup.found.clone();
        }
        let ends = Ends { host: host.to_owned(), port, under_way: self.under_way.clone(), _turn: turn };
        let resolving = self.all.resolver.resolve(host.to_owned(), port);
        let (tell, told) = tokio::sync::oneshot::channel();
        let found = told.map(|told| told.unwrap_or_else(|_| Err("the look-up broke off".to_owned()))).boxed().shared();
        under_way.push(Lookup { host: host.to_owned(), port, found: found.clone() });
        // A runtime that is shutting down drops the task at once, and then `ends` wants this lock.
        drop(under_way);
        tokio::spawn(async move {
            let found = resolving.await.map_err(|error| error.to_string());
            drop(ends);
            // Nobody may be waiting any more.
            let _ = tell.send(found);
        });
        found
    }
}

async fn take(own: &Arc<Semaphore>, all: &Arc<Semaphore>) -> Turn {
    let own = own.clone().acquire_owned().await.expect("never closed");
    (own, all.clone().acquire_owned().await.expect("never closed"))
}

impl Lookup {
    fn is_of(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == port
    }
}

impl UnderWay {
    fn find(&self, host: &str, port: u16) -> Option<Shared<BoxFuture<'static, Found>>> {
        self.lock().iter().find(|lookup| lookup.is_of(host, port)).map(|lookup| lookup.found.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lookup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the task that looks up a name; its end is the end of the look-up, a panic of the resolver included.
struct Ends {
    host: String,
    port: u16,
    under_way: Arc<UnderWay>,
    _turn: Turn,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.under_way.lock().retain(|lookup| !lookup.is_of(&self.host, self.port));
    }
}
