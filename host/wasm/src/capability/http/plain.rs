//! The `http` interface: one request, one response, each as a whole.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use outbox_event::text::keepable;
use wasmtime_wasi_http::{DEFAULT_FORBIDDEN_HEADERS, WasiBody};

use super::client::SendError;
use super::refused;
use crate::bindings::outbox::listener::http::{Host, Request, Response};
use crate::bindings::outbox::listener::types::Refusal;
use crate::capability::{HostState, event_of, refusal};
use crate::limits::pairs_bytes;

/// The most headers of one request.
const MAX_HEADERS: usize = 100;
/// The most bytes of all its headers.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// The longest URL.
pub(super) const MAX_URL_BYTES: usize = 8 << 10;

impl Host for HostState {
    async fn send(&mut self, request: Request) -> wasmtime::Result<Result<Response, Refusal>> {
        let pairs = pairs_bytes(&request.headers) + pairs_bytes(&request.attributes);
        self.meter.charge(request.method.len() + request.url.len() + request.body.len() + pairs)?;
        Ok(self.exchange(request).await.map_err(|error| {
            let (kind, message) = refused(&self.identity, &error);
            refusal(kind, message)
        }))
    }
}

impl HostState {
    async fn exchange(&mut self, given: Request) -> Result<Response, SendError> {
        let timeout = given.timeout_ms.map(|timeout| Duration::from_millis(u64::from(timeout)));
        let (mut request, event) = request(given)?;
        let client = self.requests.granted(request.uri_mut())?;
        self.requests.complete(request.headers_mut(), event.as_deref())?;
        let (head, body) = client.send(request, timeout).await?.into_parts();
        let body = gathered(body).await?;
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Ok(Response {
            status: head.status.as_u16(),
            headers: head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
            body,
            attributes: Vec::new(),
        })
    }
}

/// The request, and the id of the event that it is made for, where the guest says it.
fn request(given: Request) -> Result<(http::Request<WasiBody>, Option<String>), SendError> {
    let invalid = |what: String| SendError::Invalid(format!("the request is not valid: {what}"));
    let Request { method, url, headers, body, attributes, .. } = given;
    let event = event_of(attributes).map_err(|attribute| {
        invalid(format!("it has the attribute `{}`, which this host does not know", keepable(&attribute, 100)))
    })?;
    let known = Method::from_bytes(method.as_bytes()).ok().filter(|known| *known != Method::CONNECT);
    let method = known.ok_or_else(|| invalid(format!("`{}` is not a method that can be sent", keepable(&method, 50))))?;
    let quoted = || keepable(&url, 200);
    if url.len() > MAX_URL_BYTES {
        return Err(invalid(format!("its URL has {} bytes; at most {MAX_URL_BYTES} are sent", url.len())));
    }
    let uri: Uri = url.parse().map_err(|error| invalid(format!("its URL `{}`: {error}", quoted())))?;
    let mut sent = http::Request::new(whole(Bytes::from(body)));
    (*sent.method_mut(), *sent.uri_mut(), *sent.headers_mut()) = (method, uri, checked(headers).map_err(invalid)?);
    Ok((sent, event))
}

/// The whole body, copied piece by piece: kept as it comes, a body of many small pieces would cost many times its size.
async fn gathered<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Vec<u8>, B::Error> {
    let mut gathered = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            gathered.extend_from_slice(&piece);
        }
    }
    Ok(gathered)
}

fn whole(body: Bytes) -> WasiBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// The headers, if each may be sent by a guest.
fn checked(given: Vec<(String, String)>) -> Result<HeaderMap, String> {
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let count = given.len();
        return Err(format!(
            "it has {count} headers of {bytes} bytes; at most {MAX_HEADERS} of {MAX_HEADER_BYTES} bytes together are sent"
        ));
    }
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let quoted = keepable(&name, 100);
        let name = HeaderName::try_from(name).map_err(|_| format!("`{quoted}` is not the name of a header"))?;
        if DEFAULT_FORBIDDEN_HEADERS.contains(&name) || is_framing(&name) {
            return Err(format!("the header `{name}` is set by the host"));
        }
        let value =
            HeaderValue::try_from(value).map_err(|_| format!("the header `{name}` has a value with control characters"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn is_framing(name: &HeaderName) -> bool {
    [http::header::CONTENT_LENGTH, http::header::TE, http::header::TRAILER, http::header::EXPECT].contains(name)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn a_body_of_many_small_pieces_takes_no_more_than_twice_its_size() {
        const SIZE: usize = 100_000;
        let pieces = (0..SIZE).map(|_| Frame::data(Bytes::from_static(b"x")));
        let trailers = Frame::trailers(HeaderMap::new());
        let frames = pieces.chain([trailers]).map(Ok::<_, Infallible>);
        let gathered = gathered(StreamBody::new(stream::iter(frames))).await.expect("nothing fails");
        assert!(gathered.len() == SIZE && gathered.iter().all(|byte| *byte == b'x'));
        assert!(gathered.capacity() <= 2 * SIZE, "{}", gathered.capacity());
    }
}
