//! A network between a host and its database that breaks on request.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the network does. A change counts at once, also for connections that are open; cut ones stay cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Bytes pass.
    Pass,
    /// Every connection is cut after it has received this many more bytes of the server's. What the server then goes on to do,
    /// such as a commit, is not heard of.
    CutAfter(u64),
    /// Open connections are cut; new ones are cut as soon as they come, as by a server that is not there.
    Refuse,
    /// Connections stay open and new ones are accepted, but no byte arrives any more, in either direction: a cable is out.
    HalfOpen,
    /// Connections that are open now stay open, and no byte arrives on them any more, whatever comes later: their server was switched
    /// off. New ones pass, to the server that took its place.
    Forgets,
    /// Every piece of data comes so much later, in both directions.
    Latency(Duration),
    /// This many bytes a second pass in each direction.
    Throttle(u32),
}

/// The largest piece that is passed on at once.
const PIECE: usize = 16 << 10;

/// Pieces per second when throttled: small enough to be smooth, large enough to be cheap.
const THROTTLED_PIECES: u32 = 50;

/// Stands in front of a server; gone with this value, and its connections with it.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    accepting: JoinHandle<()>,
}

/// What the connections look at.
#[derive(Clone, Copy, Debug)]
struct State {
    network: Network,
    /// Counts the cuts: a connection of an earlier one is no more.
    generation: u64,
    /// Counts the servers that were switched off: a connection to an earlier one is silent for ever.
    server: u64,
    /// Counts the changes, so that a countdown begins anew.
    change: u64,
}

impl Proxy {
    /// Listens on a free port of this machine, and passes everything on to that address.
    ///
    /// # Panics
    /// When there is no port, or outside of a tokio runtime.
    pub async fn in_front_of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port of this machine is free");
        let address = listener.local_addr().expect("it is bound");
        let (state, watched) = watch::channel(State { network: Network::Pass, generation: 0, server: 0, change: 0 });
        Self { address, state: Arc::new(state), accepting: tokio::spawn(accept(listener, server, watched)) }
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a server, leading through this proxy instead.
    ///
    /// # Panics
    /// When the server's address does not stand in the URL as `@host:port/`.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (front, rest) = url.rsplit_once('@').expect("the URL names an account");
        let (_, path) = rest.split_once('/').expect("the URL names a database");
        format!("{front}@{}/{path}", self.address)
    }

    /// What the network does from now on.
    pub fn set(&self, network: Network) {
        self.state.send_modify(|state| {
            state.network = network;
            state.change += 1;
            state.generation += u64::from(network == Network::Refuse);
            state.server += u64::from(network == Network::Forgets);
        });
    }

    /// Cuts every open connection; new ones are treated as before.
    pub fn cut_now(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut_now();
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: watch::Receiver<State>) {
    loop {
        // An error here is of one connection that has gone already.
        let Ok((client, _)) = listener.accept().await else { continue };
        let state = state.clone();
        if state.borrow().network != Network::Refuse {
            tokio::spawn(connection(client, server, state));
        }
    }
}

/// Passes bytes both ways until one side ends or the network cuts. Then both sides are closed.
async fn connection(client: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) -> io::Result<()> {
    let born = state.borrow().generation;
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let up = pass(from_client, to_server, Direction::Up, state.clone());
    let down = pass(from_server, to_client, Direction::Down, state.clone());
    tokio::select! {
        result = up => result,
        result = down => result,
        _ = state.wait_for(|state| state.generation != born) => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let (mut change, mut received) = (state.borrow().change, 0);
    let server = state.borrow().server;
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        // Swallowed is what arrives while the cable is out; a network would send it again once the cable is in, and so do we.
        let arrives = |state: &State| state.network != Network::HalfOpen && state.server == server;
        let now = *state.wait_for(arrives).await.map_err(io::Error::other)?;
        if now.change != change {
            (change, received) = (now.change, 0);
        }
        match now.network {
            Network::CutAfter(limit) if direction == Direction::Down => {
                let left = usize::try_from(limit - received).unwrap_or(usize::MAX).min(count);
                to.write_all(&piece[..left]).await?;
                received += u64::try_from(left).unwrap_or(u64::MAX);
                if received == limit {
                    return Ok(());
                }
            }
            Network::Pass | Network::CutAfter(_) | Network::Refuse | Network::HalfOpen | Network::Forgets => {
                to.write_all(&piece[..count]).await?;
            }
            Network::Latency(span) => {
                tokio::time::sleep(span).await;
                to.write_all(&piece[..count]).await?;
            }
            Network::Throttle(rate) => {
                let size = usize::try_from((rate / THROTTLED_PIECES).max(1)).unwrap_or(PIECE);
                for part in piece[..count].chunks(size) {
                    tokio::time::sleep(Duration::from_secs(1) / THROTTLED_PIECES).await;
                    to.write_all(part).await?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
