//! `wasi:http`: linked, because many toolchains import it unasked, and refused at every call.

use std::sync::Arc;

use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use crate::wasm::capability::{Identity, State};

/// Refuses every request.
pub(in crate::wasm::capability) struct Denied(pub(in crate::wasm::capability) Arc<Identity>);

type Sent = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for Denied {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let uri = request.uri();
        let origin = format!("{}://{}", uri.scheme_str().unwrap_or("https"), uri.authority().map_or("", |host| host.as_str()));
        let origin = crate::wasm::text::keepable(&origin, 200);
        self.0.refused(format!("a request to {origin}"), "plugins have no network in this version of the host");
        Box::new(async { Err(Error::HttpRequestDenied) })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        64 << 10
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.count();
        WasiHttpCtxView { hooks: &mut self.denied, table: &mut self.table, ctx: &mut self.http }
    }
}
