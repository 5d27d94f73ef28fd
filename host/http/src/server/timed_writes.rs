//! A connection that is cut off when its client does not read what it asked for: it would keep its place for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::activity::Activity;

/// A stream whose writes fail when the other side has taken nothing for a while.
///
/// What the operating system keeps for the client counts as taken; see [`SEND_BUFFER`](super::SEND_BUFFER).
pub(crate) struct TimedWrites<S> {
    stream: S,
    within: Duration,
    activity: Arc<Activity>,
    /// Until when the other side must take something; `None` while nothing waits for it.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedWrites<S> {
    /// What the client sends and takes is told to `activity`.
    pub(crate) fn new(stream: S, within: Duration, activity: Arc<Activity>) -> Self {
        Self { stream, within, activity, waits: None }
    }

    /// What a write came to: one that got on ends the wait, one that did not begins it or finds it over.
    fn watched<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let within = self.within;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + within)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }

    /// As [`watched`](Self::watched), of bytes that the other side took.
    fn taken(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(_))) {
            self.activity.took();
        }
        self.watched(context, written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.sent();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.taken(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, ended)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.taken(context, written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn activity() -> Arc<Activity> {
        Arc::new(Activity::new())
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_given_up() {
        let (near, _far) = duplex(8);
        let mut stream = TimedWrites::new(near, Duration::from_millis(50), activity());
        let error = stream.write_all(&[0; 64]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn whatever_is_taken_ends_the_wait() {
        let (near, mut far) = duplex(8);
        let mut stream = TimedWrites::new(near, Duration::from_secs(3_600), activity());
        stream.write_all(&[0; 8]).await.expect("there is room");
        let mut more = Box::pin(stream.write_all(&[0; 8]));
        assert!(futures_util::poll!(more.as_mut()).is_pending(), "nobody has read");
        far.read_exact(&mut [0; 8]).await.expect("it was written");
        more.await.expect("there is room again");
        assert!(stream.waits.is_none(), "the next wait begins anew");
    }
}
