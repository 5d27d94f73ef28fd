//! HTTP requests to the origins that the operator allows. Needs the origin in `http.allow` of the plugin's manifest.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! fn on_order_placed(event: &Event) -> Answer {
//!     let token = config::require_secret("token")?;
//!     http::post("https://api.example.com/v2/orders").bearer(&token).json(&event.id)?.send()?.require_ok()?;
//!     Ok(Done)
//! }
//!
//! outbox_sdk::testing::set_secret("token", "t0ken");
//! outbox_sdk::testing::respond(http::Response::new(201));
//! assert_eq!(on_order_placed(&Event::for_test("Order", "OrderPlaced")), Ok(Done));
//! assert_eq!(outbox_sdk::testing::requests()[0].header("authorization"), Some("Bearer t0ken"));
//! ```
//!
//! A request may be made again when its event is delivered again. The host adds an `Idempotency-Key`, the same on every delivery of
//! the event, to each request that has none.

mod host;
mod response;

use std::time::Duration;

use serde::Serialize;

use crate::{Event, Failure, Refusal};

pub use response::Response;

/// A request in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request is made by send()"]
#[non_exhaustive]
pub struct Request {
    /// In upper case.
    pub method: String,
    /// Absolute: scheme, host, optional port, path and query.
    pub url: String,
    /// In order; a name may come several times.
    pub headers: Vec<(String, String)>,
    /// Empty for none.
    pub body: Vec<u8>,
    /// How long the request may take; `None` for nine tenths of what is left of the call, so that the listener can still answer.
    pub timeout: Option<Duration>,
    /// The event that it is for; `None` for the event of the call. See [`Request::for_event`].
    pub event_id: Option<String>,
}

/// A `GET` request.
pub fn get(url: impl Into<String>) -> Request {
    Request::new("GET", url)
}

/// A `POST` request.
pub fn post(url: impl Into<String>) -> Request {
    Request::new("POST", url)
}

/// A `PUT` request.
pub fn put(url: impl Into<String>) -> Request {
    Request::new("PUT", url)
}

/// A `DELETE` request.
pub fn delete(url: impl Into<String>) -> Request {
    Request::new("DELETE", url)
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: &str, url: impl Into<String>) -> Self {
        let (method, url) = (method.to_uppercase(), url.into());
        Self { method, url, headers: Vec::new(), body: Vec::new(), timeout: None, event_id: None }
    }

    /// For this event, one of those of the call. In a function that takes many events, a request gets an `Idempotency-Key` only
    /// when it says for which of them it is.
    pub fn for_event(mut self, event: &Event) -> Self {
        self.event_id = Some(event.id.clone());
        self
    }

    /// With one header more.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With the header `Authorization: Bearer TOKEN`.
    pub fn bearer(self, token: &str) -> Self {
        self.with_header("authorization", format!("Bearer {token}"))
    }

    /// With a body that serde turns into JSON.
    ///
    /// # Errors
    /// An unrecoverable failure when the value cannot be JSON.
    pub fn json(self, body: &impl Serialize) -> Result<Self, Failure> {
        let wrong = |error| Failure::unrecoverable(format_args!("the body of {} cannot be JSON: {error}", self.shown()));
        let body = serde_json::to_vec(body).map_err(wrong)?;
        Ok(self.bytes("application/json", body))
    }

    /// With these bytes. A content type that the headers have already stays.
    pub fn bytes(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        if self.header("content-type").is_some() {
            return self;
        }
        self.with_header("content-type", content_type)
    }

    /// Given up after this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The first header of this name, in any case of its letters; `None` if there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Makes the request, and waits for the whole response. A status such as 500 is a response, not an error, and a redirect is not
    /// followed: see [`Response::require_ok`].
    ///
    /// # Errors
    /// What the host refuses: an origin that is not granted, a request that breaks a rule, a response that is too large, and a
    /// server that cannot be reached or takes too long.
    pub fn send(self) -> Result<Response, Refusal> {
        let shown = self.shown();
        let mut response = host::send(self)?;
        response.request = shown;
        Ok(response)
    }

    /// Method and URL, without the query, which often holds a key.
    fn shown(&self) -> String {
        let url = self.url.split(['?', '#']).next().unwrap_or_default();
        format!("{} {url}", self.method)
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::{FailureKind, RefusalKind};

    fn answered(response: Response) -> Result<Response, Failure> {
        testing::respond(response);
        get("https://api.example.com/orders?key=secret").send()?.require_ok()
    }

    #[test]
    fn a_request_arrives_as_it_was_made() {
        testing::respond(Response::new(200));

        post("https://api.example.com").with_header("X-Id", "7").bytes("text/plain", "hello").send().unwrap();

        let request = testing::requests().remove(0);
        assert_eq!((request.method.as_str(), request.body.as_slice()), ("POST", &b"hello"[..]));
        assert_eq!((request.header("x-id"), request.header("content-type")), (Some("7"), Some("text/plain")));
    }

    #[test]
    fn a_content_type_of_the_authors_own_stays() {
        let request = put("https://a.b").with_header("Content-Type", "application/cloudevents+json").json(&7).unwrap();

        assert_eq!(request.headers, [("Content-Type".to_owned(), "application/cloudevents+json".to_owned())]);
    }

    #[test]
    fn a_status_that_passes_is_retryable_and_another_is_not() {
        assert!(answered(Response::new(204)).is_ok());
        for status in [408, 425, 429, 500, 503] {
            assert_eq!(answered(Response::new(status)).unwrap_err().kind, FailureKind::Retryable, "{status}");
        }
        for status in [301, 400, 404, 422] {
            assert_eq!(answered(Response::new(status)).unwrap_err().kind, FailureKind::Unrecoverable, "{status}");
        }
    }

    #[test]
    fn a_failed_status_names_the_request_without_its_query() {
        let failure = answered(Response::new(404)).unwrap_err();

        assert_eq!(failure.message, "GET https://api.example.com/orders was answered with the status 404");
        assert_eq!(failure.code.as_deref(), Some("http-404"));
    }

    #[test]
    fn a_server_says_when_to_come_back() {
        let failure = answered(Response::new(429).with_header("Retry-After", "3")).unwrap_err();

        assert_eq!(failure.kind, FailureKind::RetryableAfter(Duration::from_secs(3)));
        let date = answered(Response::new(503).with_header("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")).unwrap_err();
        assert_eq!(date.kind, FailureKind::Retryable);
    }

    #[test]
    fn what_the_host_refuses_keeps_its_kind() {
        let refused = |kind| {
            testing::refuse_request(kind, "no");
            let refusal = get("https://a.b").send().unwrap_err();
            assert_eq!(refusal.kind, kind);
            Failure::from(refusal).kind
        };

        assert_eq!(refused(RefusalKind::Invalid), FailureKind::Unrecoverable);
        for kind in [RefusalKind::NotGranted, RefusalKind::OverLimit, RefusalKind::Unavailable] {
            assert_eq!(refused(kind), FailureKind::Retryable);
        }
    }

    #[test]
    fn a_request_that_no_test_expects_is_refused() {
        let refusal = get("https://a.b").send().unwrap_err();

        assert!(refusal.message.contains("testing::respond"), "{}", refusal.message);
    }
}
