//! The stream below AMQP, as lapin takes it.
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
use lapin::AsyncTcpStream;
use rustls::ClientConfig;

use crate::stream::{self, Opener};

type Stream = Compat<stream::Stream>;

/// A stream as lapin takes it.
pub(super) async fn connect(
    opener: &Opener,
    host: &str,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<AsyncTcpStream<Stream>> {
    Ok(AsyncTcpStream::Plain(opener.connect(host, port, tls).await?.compat()))
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
    type TcpStream = Stream;
    type Sleep = <Tokio as Reactor>::Sleep;

    #[expect(refining_impl_trait, reason = "it never makes one; the type is only to be named")]
    fn register<H: io::Read + io::Write + AsFd + AsRawFd + Send + 'static>(&self, _: H) -> io::Result<Stream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, span: Duration) -> Self::Sleep {
        self.0.sleep(span)
    }

    fn interval(&self, span: Duration) -> impl futures_util::Stream<Item = Instant> + Send + 'static {
        self.0.interval(span)
    }

    #[expect(refining_impl_trait, reason = "as above")]
    fn tcp_connect_addr(&self, _: SocketAddr) -> std::future::Ready<io::Result<Stream>> {
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
