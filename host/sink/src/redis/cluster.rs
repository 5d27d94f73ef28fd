//! Which node of a cluster has a stream.
//!
//! The topology is not queried: a node without the slot of a stream names the node that has it, and the sink remembers that. Source:
//! Redis cluster specification, "Redirection and resharding".

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redis::{ErrorKind, RedisConnectionInfo, RedisError, ServerErrorKind};

use super::named::may_be_named;
use super::server::{Open, Server};
use crate::breaker::{Breaker, BreakerScope, OpenBreakers};
use crate::connection::Connection;

/// The slots of a cluster.
const SLOTS: u16 = 16_384;
/// The most nodes that are remembered, each with a connection.
const MAX_NODES: usize = 128;
/// How many of them are tried when no configured address can be connected to.
const SOME: usize = 3;

/// A node of a cluster.
pub(super) struct Node {
    pub(super) server: Server,
    pub(super) connection: Connection<Open>,
    /// Sends nothing to a node that is away, for growing rests: batches that wait for it would hold up those for other nodes.
    pub(super) breaker: Arc<Breaker>,
}

/// The breakers of a cluster's nodes. They outlive a link.
pub(super) struct Breakers {
    /// The sink's name.
    sink: String,
    /// The configured addresses of the cluster.
    target: String,
    by_address: Mutex<HashMap<String, Arc<Breaker>>>,
}

impl Breakers {
    pub(super) fn new(sink: &str, target: String) -> Self {
        Self { sink: sink.to_owned(), target, by_address: Mutex::default() }
    }

    /// Whether they are breakers of the cluster at these addresses.
    pub(super) fn belong_to(&self, target: &str) -> bool {
        self.target == target
    }

    /// The breaker of the node at this address.
    fn of(&self, address: &str) -> Arc<Breaker> {
        let mut by_address = self.lock();
        if by_address.len() >= MAX_NODES && !by_address.contains_key(address) {
            by_address.clear();
        }
        let new = || Arc::new(Breaker::new(&self.sink, BreakerScope::Receiver));
        by_address.entry(address.to_owned()).or_insert_with(new).clone()
    }

    /// The open ones.
    pub(super) fn open(&self) -> OpenBreakers {
        OpenBreakers::of(self.lock().values().map(|breaker| &**breaker))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Breaker>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a node sends a message that it does not take.
pub(super) struct Redirect {
    pub(super) node: Arc<Node>,
    /// Whether the slot is on its way to the node, and the message alone goes there, after `ASKING`.
    pub(super) asking: bool,
}

/// The nodes that servers have named. Empty for a server that belongs to no cluster.
pub(super) struct Nodes {
    /// The settings for all nodes.
    login: RedisConnectionInfo,
    breakers: Arc<Breakers>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_address: HashMap<String, Arc<Node>>,
    by_slot: HashMap<u16, Arc<Node>>,
}

impl Nodes {
    pub(super) fn new(login: RedisConnectionInfo, breakers: Arc<Breakers>) -> Self {
        Self { login, breakers, state: Mutex::default() }
    }

    /// The breakers of the nodes.
    pub(super) fn breakers(&self) -> &Arc<Breakers> {
        &self.breakers
    }

    /// The node that has this stream; `None` if no node has been named yet.
    pub(super) fn of(&self, stream: &str) -> Option<Arc<Node>> {
        let state = self.lock();
        if state.by_slot.is_empty() {
            return None;
        }
        state.by_slot.get(&slot(stream.as_bytes())).cloned()
    }

    /// Whether a server has named a node.
    pub(super) fn are_known(&self) -> bool {
        !self.lock().by_address.is_empty()
    }

    /// The node that an answer names, if it does. `host` is the host of the server that answered.
    pub(super) fn redirect(&self, answer: &RedisError, host: &str) -> Option<Redirect> {
        let (address, slot) = answer.redirect_node()?;
        let (named, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = if named.is_empty() { host } else { named };
        if !may_be_named(host) {
            return None;
        }
        let asking = matches!(answer.kind(), ErrorKind::Server(ServerErrorKind::Ask));
        let mut state = self.lock();
        if state.by_address.len() >= MAX_NODES {
            *state = State::default();
        }
        let address = format!("{host}:{port}");
        let breaker = self.breakers.of(&address);
        let new = || {
            let server = Server { host: host.to_owned(), port, settings: self.login.clone(), is_named: !named.is_empty() };
            Arc::new(Node { server, connection: Connection::default(), breaker })
        };
        let node = state.by_address.entry(address).or_insert_with(new).clone();
        if !asking && slot < SLOTS {
            state.by_slot.insert(slot, node.clone());
        }
        Some(Redirect { node, asking })
    }

    /// Some of the nodes: the cluster may have others than when it was configured.
    pub(super) fn some(&self) -> Vec<Server> {
        self.lock().by_address.values().take(SOME).map(|node| node.server.clone()).collect()
    }

    /// The node failed: its slots may be on another one now, which any other node names.
    pub(super) fn forget(&self, node: &Arc<Node>) {
        let mut state = self.lock();
        state.by_slot.retain(|_, kept| !Arc::ptr_eq(kept, node));
        node.connection.forget();
    }

    /// All connections are to be made anew.
    pub(super) fn forget_all(&self) {
        let mut state = self.lock();
        state.by_slot.clear();
        state.by_address.values().for_each(|node| node.connection.forget());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a key: by the part in braces, if there is one.
fn slot(key: &[u8]) -> u16 {
    let braced = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close]).filter(|part| !part.is_empty())
    });
    crc16(braced.unwrap_or(key)) % SLOTS
}

/// CRC-16 as in XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12_182);
        for (one, other) in
            [("{user1000}.following", "{user1000}.followers"), ("foo{bar}{zap}", "bar"), ("foo{{bar}}zap", "{bar")]
        {
            assert_eq!(slot(one.as_bytes()), slot(other.as_bytes()), "{one} and {other}");
        }
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"), "an empty part does not count");
    }
}
