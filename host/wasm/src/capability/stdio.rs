//! Stdout and stderr of a guest: what it writes there are lines of its log.

use std::sync::PoisonError;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use super::http::kept::Written;
use super::log::{SharedLines, Stream};
use crate::limits::Exceeded;

/// The most bytes of one write. wasmtime leaves it to the stream to see to that.
const PERMIT: usize = 64 << 10;

/// Stdout or stderr of a guest.
#[derive(Clone)]
pub(super) struct LogWriter {
    lines: SharedLines,
    stream: Stream,
    written: Written,
}

impl LogWriter {
    pub(super) fn stdout(lines: SharedLines, written: Written) -> Self {
        Self { lines, stream: Stream::Out, written }
    }

    pub(super) fn stderr(lines: SharedLines, written: Written) -> Self {
        Self { lines, stream: Stream::Err, written }
    }

    fn take(&self, bytes: &[u8]) -> Result<(), Exceeded> {
        self.written.add(bytes.len());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).stream(self.stream, bytes)
    }
}

impl IsTerminal for LogWriter {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogWriter {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for LogWriter {
    async fn ready(&mut self) {}
}

impl OutputStream for LogWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > PERMIT {
            return Err(StreamError::trap("wrote more to standard output or error at once than check-write allows"));
        }
        self.take(&bytes).map_err(|exceeded| StreamError::Trap(exceeded.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl AsyncWrite for LogWriter {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(self.take(bytes).map(|()| bytes.len()).map_err(std::io::Error::other))
    }

    fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
