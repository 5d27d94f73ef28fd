//! `wasi:http`: the same requests, with streams. Linked whether it is granted or not, since many toolchains import it unasked.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use super::client::SendError;
use super::connector::ConnectError;
use super::{Requests, refused};
use crate::capability::HostState;

/// The largest body of a request.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The background work of an exchange, which the client does by itself.
type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(http::Response<WasiBody>, Io), Error>;

impl WasiHttpHooks for Requests {
    fn send_request(
        &mut self,
        mut request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Io,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let identity = self.identity.clone();
        let client = match self.granted(request.uri_mut()) {
            Ok(client) => client,
            Err(error) => return Box::new(async move { Err(told(&identity, error)) }),
        };
        // The client sets it, from the address that it connects to.
        request.headers_mut().remove(http::header::HOST);
        // A call for several events cannot say here for which of them it asks.
        self.complete(request.headers_mut(), None).expect("no event is named");
        let request = request.map(bounded);
        Box::new(async move {
            let response = client.send(request, options.and_then(timeout)).await;
            let response = response.map_err(|error| told(&identity, error))?;
            let body = |body: super::client::ResponseBody| body.map_err(wasi).boxed_unsync();
            Ok((response.map(body), Box::new(async { Ok(()) }) as Io))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        64 << 10
    }
}

/// A request's body, which fails beyond its bound. What the guest writes counts for its call, and an instance that is kept has many
/// calls.
fn bounded(body: WasiBody) -> WasiBody {
    let too_large = |error: Box<dyn std::error::Error + Send + Sync>| match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(_) => Error::HttpRequestBodySize(Some(MAX_REQUEST_BYTES as u64)),
    };
    Limited::new(body, MAX_REQUEST_BYTES).map_err(too_large).boxed_unsync()
}

/// The sum of the parts that the guest bounded; `None` when it bounded nothing.
fn timeout(options: RequestOptions) -> Option<Duration> {
    Some(options.connect_timeout.unwrap_or_default() + options.first_byte_timeout?)
}

/// The guest gets a code; the operator gets the line to add.
fn told(identity: &crate::capability::Identity, error: SendError) -> Error {
    refused(identity, &error);
    wasi(error)
}

pub(super) fn wasi(error: SendError) -> Error {
    match error {
        SendError::Invalid(_) => Error::HttpRequestUriInvalid,
        SendError::NotAllowed(_) => Error::HttpRequestDenied,
        SendError::Connect(ConnectError::Private { .. }) => Error::DestinationIpProhibited,
        SendError::Connect(ConnectError::Resolve { reason, .. }) => Error::DnsError { rcode: Some(reason), info_code: None },
        SendError::Connect(ConnectError::Connect { .. }) => Error::ConnectionRefused,
        SendError::Connect(ConnectError::Busy { .. }) | SendError::Busy(_) => Error::ConnectionLimitReached,
        SendError::TimedOut(_) => Error::HttpResponseTimeout,
        SendError::TooLarge(most) => Error::HttpResponseBodySize(Some(most)),
        SendError::Broken(reason) => Error::InternalError(Some(reason)),
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.count();
        WasiHttpCtxView { hooks: &mut self.requests, table: &mut self.table, ctx: &mut self.http }
    }
}
