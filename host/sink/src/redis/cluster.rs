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
pub(super) struct NodeBreakers {
    /// The sink's name.
    sink: String,
    /// The configured addresses of the cluster.
    target: String,
    state: Mutex<NodeBreakersState>,
}

#[derive(Default)]
struct NodeBreakersState {
    by_address: HashMap<String, Arc<Breaker>>,
    /// The breaker of the node that was last named as the owner of a slot.
    by_slot: HashMap<u16, Arc<Breaker>>,
}

impl NodeBreakersState {
    /// Notes the owner of a slot.
    fn note_owner(&mut self, slot: u16, breaker: &Arc<Breaker>) {
        if let Some(previous) = self.by_slot.insert(slot, breaker.clone())
            && !Arc::ptr_eq(&previous, breaker)
        {
            self.note_moved_from(&previous);
        }
    }

    /// Removes the breaker of a node that a slot has moved from, if it is open. After a failover all slots of the node are elsewhere, but
    /// only those that get messages are named, so that the breaker would never close. A node that still has slots is named again, and
    /// begins with a closed breaker.
    fn note_moved_from(&mut self, previous: &Arc<Breaker>) {
        if !previous.is_closed() {
            self.by_slot.retain(|_, breaker| !Arc::ptr_eq(breaker, previous));
            self.by_address.retain(|_, breaker| !Arc::ptr_eq(breaker, previous));
        }
    }
}

impl NodeBreakers {
    pub(super) fn new(sink: &str, target: String) -> Self {
        Self { sink: sink.to_owned(), target, state: Mutex::default() }
    }

    /// Whether they are breakers of the cluster at these addresses.
    pub(super) fn belong_to(&self, target: &str) -> bool {
        self.target == target
    }

    /// The breaker of the node at this address. `owned` is the slot that the node was named for as the owner, if any.
    fn of(&self, address: &str, owned: Option<u16>) -> Arc<Breaker> {
        let mut state = self.lock();
        if state.by_address.len() >= MAX_NODES && !state.by_address.contains_key(address) {
            *state = NodeBreakersState::default();
        }
        let new = || Arc::new(Breaker::new(&self.sink, BreakerScope::Receiver));
        let breaker = state.by_address.entry(address.to_owned()).or_insert_with(new).clone();
        if let Some(slot) = owned {
            state.note_owner(slot, &breaker);
        }
        breaker
    }

    /// Notes that no named node owns this slot.
    fn forget_owner(&self, slot: u16) {
        let mut state = self.lock();
        if let Some(previous) = state.by_slot.remove(&slot) {
            state.note_moved_from(&previous);
        }
    }

    /// The open ones.
    pub(super) fn open(&self) -> OpenBreakers {
        OpenBreakers::of(self.lock().by_address.iter().map(|(address, breaker)| (address.as_str(), &**breaker)))
    }

    fn lock(&self) -> MutexGuard<'_, NodeBreakersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    breakers: Arc<NodeBreakers>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_address: HashMap<String, Arc<Node>>,
    by_slot: HashMap<u16, Arc<Node>>,
}

impl Nodes {
    pub(super) fn new(login: RedisConnectionInfo, breakers: Arc<NodeBreakers>) -> Self {
        Self { login, breakers, state: Mutex::default() }
    }

    /// The breakers of the nodes.
    pub(super) fn breakers(&self) -> &Arc<NodeBreakers> {
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

    /// Notes that the server of the configured addresses took a message for this stream, so that the node that was named for it does not
    /// have it any more.
    pub(super) fn entry_has(&self, stream: &str) {
        self.breakers.forget_owner(slot(stream.as_bytes()));
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
        let owned = (!asking && slot < SLOTS).then_some(slot);
        let breaker = self.breakers.of(&address, owned);
        // A node whose breaker was removed meanwhile gets another one.
        let known = state.by_address.get(&address).filter(|node| Arc::ptr_eq(&node.breaker, &breaker)).cloned();
        let node = known.unwrap_or_else(|| {
            let server = Server { host: host.to_owned(), port, settings: self.login.clone(), is_named: !named.is_empty() };
            let node = Arc::new(Node { server, connection: Connection::default(), breaker });
            state.by_address.insert(address, node.clone());
            node
        });
        if let Some(slot) = owned {
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
    use std::time::{Duration, Instant};

    use super::*;
    use crate::breaker::Down;

    #[test]
    fn the_open_breaker_of_a_node_whose_slot_has_moved_is_removed() {
        let breakers = NodeBreakers::new("log", "redis://a".to_owned());
        let away = breakers.of("a:6379", Some(1));
        let _ = breakers.of("a:6379", Some(2));
        let down = Down { reason: "it does not answer", rest: Duration::ZERO };
        away.admit(Instant::now()).expect("it is closed").record(Some(down), Instant::now());
        let _ = breakers.of("b:6379", Some(3));

        assert_eq!(breakers.open().receivers, 1);
        let _ = breakers.of("b:6379", Some(1));

        assert_eq!(breakers.open().receivers, 0, "no message may ever come for the other slot");
        assert!(breakers.of("a:6379", None).is_closed(), "a node that comes back begins anew");
    }

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
