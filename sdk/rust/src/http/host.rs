//! The host's side of a request: the contract's `http` in a component, a script in a native build.

use super::{Request, Response};
use crate::Refusal;

/// Sends a request and waits for the whole response.
#[cfg(target_family = "wasm")]
pub(super) fn send(request: Request) -> Result<Response, Refusal> {
    use crate::bindings::millis;
    use crate::bindings::outbox::listener::http;

    let Request { method, url, headers, body, timeout, event_id } = request;
    // A call that the host cuts off loses its instance, and the reason with it.
    let timeout = timeout.unwrap_or_else(|| crate::call::remaining().mul_f64(0.9));
    let timeout_ms = Some(millis(timeout).max(1));
    let attributes = crate::event::attributes_for(event_id);
    let request = http::Request { method, url, headers, body, timeout_ms, attributes };
    let http::Response { status, headers, body, .. } = http::send(&request)?;
    Ok(Response { headers, body, ..Response::new(status) })
}

/// Takes the next response that the test has scripted.
#[cfg(not(target_family = "wasm"))]
pub(super) fn send(request: Request) -> Result<Response, Refusal> {
    use crate::RefusalKind;
    use crate::testing::with_host;

    with_host(|host| {
        let unscripted = || {
            let message = format!("{}: a test says what answers it, with outbox_sdk::testing::respond", request.shown());
            Err(Refusal { kind: RefusalKind::Unavailable, message })
        };
        let answer = host.responses.pop_front().unwrap_or_else(unscripted);
        host.requests.push(request);
        answer
    })
}
