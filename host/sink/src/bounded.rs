//! A stream from a server that is not trusted to stop sending.
//!
//! Some clients read in a loop without yielding: hyper skips any number of `1xx` responses within one poll. A server that sends
//! faster than the client parses would occupy a thread of the runtime, so that no timeout of the request can fire.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes after which a reader yields to other tasks.
const MAX_BURST: usize = 16 << 10;

/// A stream whose reader yields after 16 KiB, and which fails after a number of bytes without a write in between.
#[derive(Debug)]
pub struct Bounded<T> {
    inner: T,
    /// The most bytes between two writes.
    max_read: usize,
    /// The bytes that were read since the last write.
    read: usize,
    /// The bytes that were read since the reader last had to wait.
    burst: usize,
}

impl<T> Bounded<T> {
    /// Limits `inner` to `max_read` bytes after each write.
    pub fn new(inner: T, max_read: usize) -> Self {
        Self { inner, max_read, read: 0, burst: 0 }
    }

    /// The stream that is limited.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    fn wrote(&mut self, bytes: usize) {
        if bytes > 0 {
            self.read = 0;
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Bounded<T> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.burst >= MAX_BURST {
            self.burst = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if polled.is_pending() {
            self.burst = 0;
        }
        ready!(polled)?;
        let read = buffer.filled().len() - before;
        self.burst += read;
        self.read = self.read.saturating_add(read);
        if self.read > self.max_read {
            let reason = format!("the server sent more than {} KiB since the last request", self.max_read >> 10);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Bounded<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, parts))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Always has more to read, and takes all that is written.
    struct Endless;

    impl AsyncRead for Endless {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buffer.initialize_unfilled().fill(b'x');
            buffer.advance(buffer.remaining());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_reader_yields_though_there_is_always_more_to_read() {
        let mut stream = Bounded::new(Endless, usize::MAX);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut read = 0;
            loop {
                let mut bytes = [0; 1 << 10];
                let mut buffer = ReadBuf::new(&mut bytes);
                match Pin::new(&mut stream).poll_read(&mut context, &mut buffer) {
                    Poll::Ready(result) => result.expect("below the limit"),
                    Poll::Pending => break,
                }
                read += buffer.filled().len();
                assert!(read <= MAX_BURST, "it does not yield");
            }
            assert_eq!(read, MAX_BURST);
        }
    }

    #[tokio::test]
    async fn a_server_may_send_only_so_much_after_each_write() {
        let mut stream = Bounded::new(Endless, 4 << 10);
        let mut answer = [0; 4 << 10];
        for _ in 0..9 {
            stream.write_all(b"request").await.expect("it takes all");
            stream.read_exact(&mut answer).await.expect("an answer may be this long");
        }

        let failed = stream.read_exact(&mut answer[..1]).await.expect_err("this is more than an answer");

        assert_eq!(failed.kind(), io::ErrorKind::InvalidData);
        assert!(failed.to_string().contains("sent more than 4 KiB"), "{failed}");
    }
}
