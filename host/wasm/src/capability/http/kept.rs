//! What wasmtime keeps for a guest behind the handles of `wasi:http`, outside of the guest's memory: headers of requests and of
//! responses, parts of addresses, bodies on their way out. It comes in here, so that it is counted, and wasmtime's own functions do
//! the rest.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, LinkerInstance, Resource};
use wasmtime_wasi::p2::{DynOutputStream, OutputStream, Pollable, StreamResult};
use wasmtime_wasi_http::p2::bindings::http::outgoing_handler::Host as _;
use wasmtime_wasi_http::p2::bindings::http::types::{
    ErrorCode, HeaderError, HostFields, HostFutureTrailers as HostFutureTrailersFunctions,
    HostIncomingResponse as HostIncomingResponseFunctions, HostOutgoingRequest as _, Method, Scheme,
};
use wasmtime_wasi_http::p2::body::{HostFutureTrailers, HostIncomingBody, HostOutgoingBody};
use wasmtime_wasi_http::p2::types::{
    HostFutureIncomingResponse, HostIncomingResponse, HostOutgoingRequest, HostOutgoingResponse,
};
use wasmtime_wasi_http::p2::{HeaderResult, HttpResult};
use wasmtime_wasi_http::{FieldMap, RequestOptions, WasiHttpView};

use super::plain::MAX_URL_BYTES;
use crate::capability::HostState;

const TYPES: &str = "wasi:http/types@0.2.12";
const HANDLER: &str = "wasi:http/outgoing-handler@0.2.12";

/// The longest method, and the longest scheme.
const MAX_WORD_BYTES: usize = 64;
/// What a header counts for beside its texts.
const EACH_FIELD: usize = 128;

type Context<'s> = StoreContextMut<'s, HostState>;
type Request = Resource<HostOutgoingRequest>;
type Fields = Resource<FieldMap>;

/// Takes the place of the functions through which a guest leaves bytes with the host, in a linker that has all of `wasi:http`.
pub(crate) fn count_what_is_kept(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    headers(&mut types)?;
    names(&mut types)?;
    addresses(&mut types)?;
    responses(&mut types)?;
    types.func_wrap("[method]outgoing-body.write", |mut store: Context<'_>, (body,): (Resource<HostOutgoingBody>,)| {
        let state = store.data_mut();
        state.count();
        let Some(stream) = state.table.get_mut(&body)?.take_output_stream() else { return Ok((Err(()),)) };
        let counted: DynOutputStream = Box::new(CountedStream { stream, written: state.written().clone() });
        Ok((Ok::<_, ()>(state.table.push_child(counted, &body)?),))
    })?;
    linker.instance(HANDLER)?.func_wrap(
        "handle",
        |mut store: Context<'_>, (request, options): (Request, Option<Resource<RequestOptions>>)| match store
            .data_mut()
            .handle(request, options)
        {
            Ok(response) => Ok((Ok(response),)),
            Err(error) => Ok((Err::<_, ErrorCode>(error.downcast()?),)),
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Each set of headers is bounded by wasmtime; all of them together are bounded by what one call may exchange with the host.
fn headers(types: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    types.func_wrap("[static]fields.from-list", |mut store: Context<'_>, (entries,): (Vec<(String, Vec<u8>)>,)| {
        let state = store.data_mut();
        state.meter.keep(entries.iter().map(|(name, value)| field_bytes(name.len(), value.len())).sum())?;
        answer(HostFields::from_list(&mut state.http(), entries))
    })?;
    types.func_wrap(
        "[method]fields.set",
        |mut store: Context<'_>, (fields, name, values): (Fields, String, Vec<Vec<u8>>)| {
            let state = store.data_mut();
            let kept: usize = values.iter().map(|value| field_bytes(name.len(), value.len())).sum();
            // Without values, the name alone crosses the boundary.
            state.meter.keep(name.len() + kept)?;
            answer(HostFields::set(&mut state.http(), fields, name, values))
        },
    )?;
    types.func_wrap("[method]fields.append", |mut store: Context<'_>, (fields, name, value): (Fields, String, Vec<u8>)| {
        let state = store.data_mut();
        state.meter.keep(field_bytes(name.len(), value.len()))?;
        answer(HostFields::append(&mut state.http(), fields, name, value))
    })?;
    types.func_wrap("[method]fields.clone", |mut store: Context<'_>, (fields,): (Fields,)| {
        let state = store.data_mut();
        // The two share what they hold until one of them changes.
        state.keep_fields(&fields)?;
        Ok((HostFields::clone(&mut state.http(), fields)?,))
    })
}

/// wasmtime accepts a name of any length, even for a header that it only looks up or removes.
fn names(types: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    types.func_wrap("[method]fields.get", |mut store: Context<'_>, (fields, name): (Fields, String)| {
        let state = store.data_mut();
        state.meter.charge_bytes(name.len())?;
        Ok((HostFields::get(&mut state.http(), fields, name)?,))
    })?;
    types.func_wrap("[method]fields.has", |mut store: Context<'_>, (fields, name): (Fields, String)| {
        let state = store.data_mut();
        state.meter.charge_bytes(name.len())?;
        Ok((HostFields::has(&mut state.http(), fields, name)?,))
    })?;
    types.func_wrap("[method]fields.delete", |mut store: Context<'_>, (fields, name): (Fields, String)| {
        let state = store.data_mut();
        state.meter.charge_bytes(name.len())?;
        answer(HostFields::delete(&mut state.http(), fields, name))
    })
}

/// The answer of a function that may refuse a header.
fn answer<T>(done: HeaderResult<T>) -> wasmtime::Result<(Result<T, HeaderError>,)> {
    Ok((match done {
        Ok(value) => Ok(value),
        Err(error) => Err(error.downcast()?),
    },))
}

/// Who holds on to a response's headers holds on to what its endpoint has sent, also when the response is gone.
fn responses(types: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]incoming-response.headers",
        |mut store: Context<'_>, (response,): (Resource<HostIncomingResponse>,)| {
            let state = store.data_mut();
            let headers = HostIncomingResponseFunctions::headers(&mut state.http(), response)?;
            state.keep_fields(&headers)?;
            Ok((headers,))
        },
    )?;
    types.func_wrap("[method]future-trailers.get", |mut store: Context<'_>, (trailers,): (Resource<HostFutureTrailers>,)| {
        let state = store.data_mut();
        let got = HostFutureTrailersFunctions::get(&mut state.http(), trailers)?;
        if let Some(Ok(Ok(Some(trailers)))) = &got {
            state.keep_fields(trailers)?;
        }
        Ok((got,))
    })
}

fn field_bytes(name: usize, value: usize) -> usize {
    name + value + EACH_FIELD
}

/// wasmtime takes an address of any length.
fn addresses(types: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: Context<'_>, (request, method): (Request, Method)| {
            let length = if let Method::Other(method) = &method { method.len() } else { 0 };
            store.data_mut().part(length, MAX_WORD_BYTES, |state| state.http().set_method(request, method))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-scheme",
        |mut store: Context<'_>, (request, scheme): (Request, Option<Scheme>)| {
            let length = if let Some(Scheme::Other(scheme)) = &scheme { scheme.len() } else { 0 };
            store.data_mut().part(length, MAX_WORD_BYTES, |state| state.http().set_scheme(request, scheme))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: Context<'_>, (request, authority): (Request, Option<String>)| {
            let length = authority.as_ref().map_or(0, String::len);
            store.data_mut().part(length, MAX_URL_BYTES, |state| state.http().set_authority(request, authority))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: Context<'_>, (request, path): (Request, Option<String>)| {
            let length = path.as_ref().map_or(0, String::len);
            store.data_mut().part(length, MAX_URL_BYTES, |state| state.http().set_path_with_query(request, path))
        },
    )
}

/// A function's one result, which is that it was done or refused.
type Done = (Result<(), ()>,);

impl HostState {
    /// Takes note that the host keeps these headers.
    fn keep_fields(&mut self, fields: &Fields) -> wasmtime::Result<()> {
        let kept = self.table.get(fields)?.iter().map(|(name, value)| field_bytes(name.as_str().len(), value.len())).sum();
        Ok(self.meter.keep(kept)?)
    }

    /// Sets a part of a request, which has `bytes`; refuses one of more than `most`.
    fn part(
        &mut self,
        bytes: usize,
        most: usize,
        set: impl FnOnce(&mut Self) -> wasmtime::Result<Result<(), ()>>,
    ) -> wasmtime::Result<Done> {
        self.meter.keep(bytes)?;
        if bytes > most {
            self.count();
            return Ok((Err(()),));
        }
        Ok((set(self)?,))
    }

    /// Sends a request that says where to.
    fn handle(
        &mut self,
        request: Request,
        options: Option<Resource<RequestOptions>>,
    ) -> HttpResult<Resource<HostFutureIncomingResponse>> {
        // Only read there, though they are given away.
        let left = options.as_ref().map(|options| Resource::<RequestOptions>::new_own(options.rep()));
        let asked = self.table.get(&request)?;
        let sent = if asked.authority.is_some() && asked.path_with_query.is_some() {
            self.http().handle(request, options)
        } else {
            // wasmtime would warn of each, and not say whose it is.
            self.count();
            self.table.delete(request)?;
            Err(ErrorCode::HttpRequestUriInvalid.into())
        };
        if let Some(options) = left {
            self.table.delete(options)?;
        }
        sent
    }

    pub(in crate::capability) fn written(&mut self) -> &Written {
        self.written.get_or_insert_default()
    }
}

/// Whether what lies behind a handle may hold bytes that a guest has left. A stream lies there beside its body.
pub(in crate::capability) fn holds_bytes(behind: &dyn Any) -> bool {
    behind.is::<FieldMap>()
        || behind.is::<HostOutgoingRequest>()
        || behind.is::<HostOutgoingResponse>()
        || behind.is::<HostOutgoingBody>()
        || behind.is::<HostFutureIncomingResponse>()
        || behind.is::<HostIncomingResponse>()
        || behind.is::<HostIncomingBody>()
        || behind.is::<HostFutureTrailers>()
}

/// How many bytes were written to the streams of a guest since somebody asked.
#[derive(Clone, Debug, Default)]
pub(in crate::capability) struct Written(Arc<AtomicU64>);

impl Written {
    pub(in crate::capability) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(in crate::capability) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The stream into a body.
struct CountedStream {
    stream: DynOutputStream,
    written: Written,
}

#[async_trait::async_trait]
impl Pollable for CountedStream {
    async fn ready(&mut self) {
        self.stream.ready().await;
    }
}

#[async_trait::async_trait]
impl OutputStream for CountedStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.written.add(bytes.len());
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.stream.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.stream.check_write()
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}
