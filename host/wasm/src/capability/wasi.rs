//! WASI 0.2: clocks, randomness and the two output streams work; files, sockets, arguments and the environment are empty.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::Network;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::Host as _;
use wasmtime_wasi::p2::bindings::sockets::network::ErrorCode;
use wasmtime_wasi::sockets::WasiSocketsView as _;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::HostState;
use super::http::kept::Written;
use super::log::SharedLines;
use super::stdio::LogWriter;
use crate::limits::MAX_RANDOM_BYTES;

const IP_NAME_LOOKUP: &str = "wasi:sockets/ip-name-lookup@0.2.12";

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

/// Replaces the function whose argument may be large and is kept nowhere, in a linker that has all of WASI: the bytes count, and wasmtime's
/// own function does the work.
pub(crate) fn count_arguments(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(IP_NAME_LOOKUP)?.func_wrap(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, HostState>, (network, name): (Resource<Network>, String)| {
            let state = store.data_mut();
            state.meter.charge_bytes(name.len())?;
            match state.sockets().resolve_addresses(network, name) {
                Ok(addresses) => Ok((Ok(addresses),)),
                Err(error) => Ok((Err::<_, ErrorCode>(error.downcast()?),)),
            }
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn context(lines: &SharedLines, written: &Written) -> WasiCtx {
    WasiCtx::builder()
        .stdout(LogWriter::stdout(lines.clone(), written.clone()))
        .stderr(LogWriter::stderr(lines.clone(), written.clone()))
        .max_random_size(MAX_RANDOM_BYTES)
        .build()
}
