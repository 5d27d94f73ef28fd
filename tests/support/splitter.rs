//! A proxy in front of a PostgreSQL and its standby that sends reads to the standby, as products for splitting reads do.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// The part of the traffic that goes to the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Nothing.
    Off,
    /// Each statement that only reads, outside a transaction.
    Reads,
    /// Every second connection with all of its statements, as behind an address that leads to several servers in turn.
    Connections,
}

/// Gone with this value, and its connections with it.
pub struct Splitter {
    address: SocketAddr,
    split: watch::Sender<Split>,
    accepting: JoinHandle<()>,
}

#[derive(Clone)]
struct Servers {
    primary: SocketAddr,
    standby: SocketAddr,
    /// Of the standby, which takes it in clear text.
    password: Arc<str>,
}

impl Splitter {
    /// Listens on a free port of this machine.
    ///
    /// # Panics
    /// When there is no port, or outside of a tokio runtime.
    pub async fn in_front_of(primary: SocketAddr, standby: SocketAddr, password: &str, split: Split) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port of this machine is free");
        let address = listener.local_addr().expect("it is bound");
        let (split, watched) = watch::channel(split);
        let servers = Servers { primary, standby, password: password.into() };
        Self { address, split, accepting: tokio::spawn(accept(listener, servers, watched)) }
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Splits in another way from now on. Cuts all connections.
    pub fn set(&self, split: Split) {
        self.split.send_replace(split);
    }
}

impl Drop for Splitter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, servers: Servers, mut split: watch::Receiver<Split>) {
    let accepted = AtomicUsize::new(0);
    loop {
        // An error here is of one connection that has gone already.
        let Ok((client, _)) = listener.accept().await else { continue };
        let now = *split.borrow_and_update();
        let (servers, mut later) = (servers.clone(), split.clone());
        let is_second = accepted.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        tokio::spawn(async move {
            let connection = async {
                match now {
                    Split::Reads => splitting(client, &servers).await,
                    Split::Connections if is_second => passing(client, servers.standby).await,
                    Split::Off | Split::Connections => passing(client, servers.primary).await,
                }
            };
            tokio::select! {
                // The client sees the end of its connection, whatever the reason.
                _ = connection => {}
                _ = later.changed() => {}
            }
        });
    }
}

async fn passing(mut client: TcpStream, server: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The answer to a client that asks for TLS or GSS: no.
const NO: &[u8] = b"N";
const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
const GSS_REQUEST: [u8; 4] = 80_877_104_u32.to_be_bytes();

async fn splitting(mut client: TcpStream, servers: &Servers) -> io::Result<()> {
    client.set_nodelay(true)?;
    let startup = loop {
        let mut startup = client.read_u32().await?.to_be_bytes().to_vec();
        startup.extend(body(&mut client, startup[..4].try_into().expect("four bytes")).await?);
        if startup[4..8] != SSL_REQUEST && startup[4..8] != GSS_REQUEST {
            break startup;
        }
        client.write_all(NO).await?;
    };
    let mut primary = TcpStream::connect(servers.primary).await?;
    primary.set_nodelay(true)?;
    primary.write_all(&startup).await?;
    let standby = logged_in(servers, &startup).await?;
    let (from_client, to_client) = client.into_split();
    let ((from_primary, to_primary), (from_standby, to_standby)) = (primary.into_split(), standby.into_split());
    let to_client = Mutex::new(to_client);
    tokio::select! {
        ended = route(from_client, to_primary, to_standby) => ended,
        ended = answer(from_primary, &to_client) => ended,
        ended = answer(from_standby, &to_client) => ended,
    }
}

/// A session of the standby that waits for its first statement.
async fn logged_in(servers: &Servers, startup: &[u8]) -> io::Result<TcpStream> {
    let mut standby = TcpStream::connect(servers.standby).await?;
    standby.set_nodelay(true)?;
    standby.write_all(startup).await?;
    loop {
        match message(&mut standby).await? {
            // Authentication in clear text.
            (b'R', body) if body[..] == [0, 0, 0, 3] => {
                let password = [servers.password.as_bytes(), &[0]].concat();
                standby.write_all(&framed(b'p', &password)).await?;
            }
            (b'E', body) => return Err(io::Error::other(String::from_utf8_lossy(&body).into_owned())),
            (b'Z', _) => return Ok(standby),
            _ => {}
        }
    }
}

async fn answer(mut from: OwnedReadHalf, client: &Mutex<OwnedWriteHalf>) -> io::Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        client.lock().await.write_all(&piece[..count]).await?;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Primary,
    Standby,
}

/// Sends each message of a client to the server that its statement goes to. A client waits for an answer before it asks again.
async fn route(mut client: OwnedReadHalf, mut primary: OwnedWriteHalf, mut standby: OwnedWriteHalf) -> io::Result<()> {
    let mut prepared: HashMap<Vec<u8>, Place> = HashMap::new();
    let (mut place, mut is_in_transaction) = (Place::Primary, false);
    loop {
        let (kind, body) = message(&mut client).await?;
        let mut texts = body.split(|byte| *byte == 0);
        let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        match kind {
            b'Q' => {
                let text = String::from_utf8_lossy(first).to_uppercase();
                let begins = text.starts_with("BEGIN");
                is_in_transaction = begins || is_in_transaction && !text.starts_with("COMMIT") && !text.starts_with("ROLLBACK");
                place = place_of(&text, is_in_transaction);
            }
            b'P' => {
                place = place_of(&String::from_utf8_lossy(second).to_uppercase(), is_in_transaction);
                prepared.insert(first.to_vec(), place);
            }
            b'B' => place = prepared.get(second).copied().unwrap_or(Place::Primary),
            b'D' | b'C' if first.first() == Some(&b'S') => {
                place = prepared.get(&first[1..]).copied().unwrap_or(Place::Primary);
            }
            _ => {}
        }
        let server = if place == Place::Standby { &mut standby } else { &mut primary };
        server.write_all(&framed(kind, &body)).await?;
    }
}

/// Words of statements that such proxies send to the primary. Locks and settings of a session have no meaning on another server.
const WRITES: [&str; 9] = [
    "INSERT ",
    "UPDATE ",
    "DELETE ",
    "FOR UPDATE",
    "FOR NO KEY UPDATE",
    "SET_CONFIG",
    "ADVISORY_LOCK",
    "ADVISORY_UNLOCK",
    "PG_LOCKS",
];

fn place_of(text: &str, is_in_transaction: bool) -> Place {
    let reads = ["SELECT", "WITH"].iter().any(|word| text.trim_start().starts_with(word));
    let is_read = reads && !is_in_transaction && !WRITES.iter().any(|write| text.contains(write));
    if is_read { Place::Standby } else { Place::Primary }
}

async fn message(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let length = from.read_u32().await?.to_be_bytes();
    Ok((kind, body(from, length).await?))
}

/// The rest of a message after its length, which counts itself.
async fn body(from: &mut (impl AsyncReadExt + Unpin), length: [u8; 4]) -> io::Result<Vec<u8>> {
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    let mut body = vec![0; length.saturating_sub(4)];
    from.read_exact(&mut body).await?;
    Ok(body)
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a message of a test is short");
    [&[kind], &length.to_be_bytes()[..], body].concat()
}
