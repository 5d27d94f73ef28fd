//! The stream below a client of ours: TCP, or TLS with the same crypto as everywhere else. It ends with its user, and
//! brings no more than it may.
//!
//! A client may keep a connection that was given up: one waits in a thread of its own for a broker that says nothing, another
//! collects an answer that does not end. Neither can once its stream fails.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::future::select_ok;
use futures_util::task::AtomicWaker;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// TCP or TLS.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// The bytes that a server may send between two calls of [`Lifeline::allow`]: an answer is short, and messages that come back are no
/// larger than a batch.
const MAX_READ: usize = 16 << 20;

/// Keeps the streams that were opened with it. They fail when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Lifeline(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_cut: AtomicBool,
    /// The bytes that were read since they were last allowed.
    read: AtomicUsize,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// Opens streams that live no longer than their lifeline.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    shared: Arc<Shared>,
    /// Whether a server may be at an address. An IPv4 address is given as such, also where it is written as IPv6.
    allows: fn(IpAddr) -> bool,
}

/// A connection to a server.
pub(super) struct Stream {
    inner: Box<dyn Transport>,
    shared: Arc<Shared>,
}

impl Lifeline {
    pub(super) fn opener(&self) -> Opener {
        Opener { shared: self.0.clone(), allows: |_| true }
    }

    /// From now on the server may send so many bytes again.
    pub(super) fn allow(&self) {
        self.0.read.store(0, Ordering::Relaxed);
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.is_cut.store(true, Ordering::SeqCst);
        self.0.reader.wake();
        self.0.writer.wake();
    }
}

impl Opener {
    /// Connects to these addresses alone, however a host is written and whatever its name resolves to.
    pub(super) fn only_at(self, allows: fn(IpAddr) -> bool) -> Self {
        Self { allows, ..self }
    }

    /// Connects; with TLS when a configuration for it is given.
    ///
    /// # Errors
    /// If the host has no address that is allowed, the server cannot be connected to, TLS fails, or the lifeline is dropped.
    pub(super) async fn connect(&self, host: &str, port: u16, tls: Option<Arc<ClientConfig>>) -> io::Result<Stream> {
        self.shared.check()?;
        // In a URL an IPv6 address stands in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = tokio::net::lookup_host((host, port)).await?;
        let addresses = addresses.filter(|address| (self.allows)(address.ip().to_canonical()));
        // All at once: a name may stand for an address that does not answer.
        let connecting: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
        if connecting.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address that may be connected to")));
        }
        let (tcp, _) = select_ok(connecting).await?;
        tcp.set_nodelay(true)?;
        let inner: Box<dyn Transport> = match tls {
            None => Box::new(tcp),
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(config).connect(name, tcp).await?)
            }
        };
        Ok(Stream { inner, shared: self.shared.clone() })
    }
}

impl Shared {
    fn check(&self) -> io::Result<()> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection is not needed any more"));
        }
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Registered before looking: a cut in between wakes.
        self.shared.reader.register(context.waker());
        self.shared.check()?;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        if self.shared.read.fetch_add(read, Ordering::Relaxed) + read > MAX_READ {
            let what = format!("the server sends more than {} MiB where a short answer is due", MAX_READ >> 20);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.writer.register(context.waker());
        self.shared.check()?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.writer.register(context.waker());
        self.shared.check()?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.writer.register(context.waker());
        self.shared.check()?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected(lifeline: &Lifeline) -> (Stream, TcpStream, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let opener = lifeline.opener();
        let (stream, accepted) = tokio::join!(opener.connect("127.0.0.1", port, None), listener.accept());
        (stream.expect("connects"), accepted.expect("is connected to").0, port)
    }

    #[tokio::test]
    async fn a_read_that_waits_fails_as_soon_as_the_lifeline_is_gone_and_nothing_is_opened_after_that() {
        let lifeline = Lifeline::default();
        let (mut stream, _server, port) = connected(&lifeline).await;
        let opener = lifeline.opener();
        let reading = tokio::spawn(async move { stream.read_u8().await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!reading.is_finished());

        drop(lifeline);

        let failed = reading.await.expect("no panic").expect_err("nothing was sent");
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionAborted);
        let refused = opener.connect("127.0.0.1", port, None).await.err().expect("it is refused");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test]
    async fn only_allowed_addresses_are_connected_to_however_a_host_is_written() {
        let lifeline = Lifeline::default();
        let (_stream, _server, port) = connected(&lifeline).await;
        let opener = lifeline.opener().only_at(|address| !address.is_loopback());
        for host in ["127.0.0.1", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "2130706433", "0x7f000001", "127.1"] {
            let error = opener.connect(host, port, None).await.err().expect("it is refused");
            assert!(error.to_string().contains("no address that may be connected to"), "{host}: {error}");
        }
    }

    #[tokio::test]
    async fn a_server_may_send_so_much_between_two_batches_and_no_more() {
        let lifeline = Lifeline::default();
        let (mut stream, mut server, _) = connected(&lifeline).await;
        tokio::spawn(async move { while server.write_all(&[b'x'; 1 << 16]).await.is_ok() {} });
        let mut part = vec![0; MAX_READ];
        stream.read_exact(&mut part).await.expect("it may send that much");
        lifeline.allow();
        stream.read_exact(&mut part[..MAX_READ / 2]).await.expect("and again");

        let failed = stream.read_exact(&mut part).await.expect_err("this is more than an answer");

        assert_eq!(failed.kind(), io::ErrorKind::InvalidData);
    }
}
