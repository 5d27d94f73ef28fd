//! WASI 0.2: clocks, randomness and the two output streams work; files, sockets, arguments and the environment are empty.

use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::HostState;
use super::http::kept::Written;
use super::log::SharedLines;
use super::stdio::LogWriter;
use crate::limits::MAX_RANDOM_BYTES;

impl WasiView for HostState {
    /// Every WASI call comes through here, so here they are counted.
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.count();
        if self.wasi.is_none() {
            let written = self.written().clone();
            let context = context(self.lines(), &written);
            self.wasi = Some(Box::new(context));
        }
        let ctx = self.wasi.as_deref_mut().expect("made above");
        WasiCtxView { ctx, table: &mut self.table }
    }
}

fn context(lines: &SharedLines, written: &Written) -> WasiCtx {
    WasiCtx::builder()
        .stdout(LogWriter::stdout(lines.clone(), written.clone()))
        .stderr(LogWriter::stderr(lines.clone(), written.clone()))
        .max_random_size(MAX_RANDOM_BYTES)
        .build()
}
