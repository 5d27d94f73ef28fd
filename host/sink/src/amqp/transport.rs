//! The stream below AMQP: TCP, or TLS with the same crypto as everywhere else.
//!
//! lapin's own TLS reads PKCS#12, whose crates are many and old; so it is given a stream that is encrypted already.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_compat::{Compat, CompatExt};
use async_rs::Tokio;
use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::Task;
use futures_util::Stream;
use lapin::AsyncTcpStream;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// TCP or TLS.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

type Boxed = Compat<Box<dyn Transport>>;

/// Connects; with TLS when a configuration for it is given.
pub(super) async fn connect(host: &str, port: u16, tls: Option<Arc<ClientConfig>>) -> io::Result<AsyncTcpStream<Boxed>> {
    // In a URL an IPv6 address stands in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    let stream: Box<dyn Transport> = match tls {
        None => Box::new(tcp),
        Some(config) => {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            Box::new(TlsConnector::from(config).connect(name, tcp).await?)
        }
    };
    Ok(AsyncTcpStream::Plain(stream.compat()))
}

/// Tokio, with streams of ours.
#[derive(Clone, Debug)]
pub(super) struct Kit(pub(super) Tokio);

impl RuntimeKit for Kit {}

impl Executor for Kit {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&self, future: F) -> Task<Self::Task<T>> {
        self.0.spawn(future)
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(&self, work: F) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(work)
    }
}

impl Reactor for Kit {
    type TcpStream = Boxed;
    type Sleep = <Tokio as Reactor>::Sleep;

    #[expect(refining_impl_trait, reason = "it never makes one; the type is only to be named")]
    fn register<H: io::Read + io::Write + AsFd + AsRawFd + Send + 'static>(&self, _: H) -> io::Result<Boxed> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, span: Duration) -> Self::Sleep {
        self.0.sleep(span)
    }

    fn interval(&self, span: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(span)
    }

    #[expect(clippy::manual_async_fn, reason = "an async function would borrow the kit, and the future must not")]
    fn tcp_connect_addr(&self, address: SocketAddr) -> impl Future<Output = io::Result<Boxed>> + Send + 'static {
        async move {
            let tcp: Box<dyn Transport> = Box::new(TcpStream::connect(address).await?);
            Ok(tcp.compat())
        }
    }
}
