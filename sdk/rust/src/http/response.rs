//! What a server answered.

use std::str::Utf8Error;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::find;
use crate::Failure;

/// What a server answered, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// 100 to 599.
    pub status: u16,
    /// In the order in which they came.
    pub headers: Vec<(String, String)>,
    /// As it came: nothing is decompressed.
    pub body: Vec<u8>,
    /// What it is the response to, for messages.
    pub(super) request: String,
}

impl Response {
    /// Whether the status is 200 to 299.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header of this name, in any case of its letters; `None` if there is none.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The body as text.
    ///
    /// # Errors
    /// When it is no UTF-8.
    pub fn text(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.body)
    }

    /// The body, parsed as JSON.
    ///
    /// # Errors
    /// A retryable failure: a server that sends something else may be in trouble that passes.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let wrong = |error| {
            let message = format!("invalid response to {}: {error}", self.request);
            Failure::retryable(message).code("bad-response")
        };
        serde_json::from_slice(&self.body).map_err(wrong)
    }

    /// The response when its status is 200 to 299.
    ///
    /// # Errors
    /// With the code `http-STATUS`: a retryable failure for 408, 425, 429 and 500 to 599, which pass, after as many seconds as the
    /// header `Retry-After` says; an unrecoverable one for every other status, since the same request would be answered so again.
    pub fn require_ok(self) -> Result<Self, Failure> {
        if self.is_ok() {
            return Ok(self);
        }
        let message = format!("{} was answered with the status {}", self.request, self.status);
        let passes = matches!(self.status, 408 | 425 | 429 | 500..);
        let failure = match self.retry_after() {
            _ if !passes => Failure::unrecoverable(message),
            Some(delay) => Failure::retryable_after(delay, message),
            None => Failure::retryable(message),
        };
        Err(failure.code(format!("http-{}", self.status)))
    }

    /// How long the server asks to wait, in whole seconds; `None` when it does not say so, or names a date.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds: u32 = self.header("retry-after")?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds.into()))
    }
}

/// For tests of listeners: a response that no server sent.
impl Response {
    /// A response with this status, without headers and body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), request: String::new() }
    }

    /// With one header more.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// With this body, as JSON.
    ///
    /// # Panics
    /// When the value cannot be written as JSON, such as a map whose keys are not strings.
    #[must_use]
    pub fn with_json(self, body: &impl Serialize) -> Self {
        self.with_body(serde_json::to_vec(body).expect("a test's body can be written as JSON"))
    }
}
