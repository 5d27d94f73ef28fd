//! How the API says no: `application/problem+json` with a stable code. Source: RFC 9457.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outbox::WriteError;
use outbox_event::wording::placed;
use outbox_store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

/// The media type of what is refused.
pub(super) const PROBLEM: &str = "application/problem+json";

/// Why a request was refused. Programs may rely on the status and the code of each; the words may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The request cannot be read: its query, its path, its body broke off.
    BadRequest,
    /// The body is not JSON.
    MalformedJson,
    /// The body is JSON, so it must be UTF-8, and is not.
    InvalidUtf8,
    /// No token, or an unknown one.
    Unauthorized,
    /// The token was valid once.
    TokenExpired,
    /// The token's role does not reach so far.
    Forbidden,
    /// A browser sends it for another site.
    CrossSite,
    /// The `Host` header names another machine.
    ForeignHost,
    /// What was named is not there.
    NotFound,
    /// The path knows other methods.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// What was named is not in a state for it.
    WrongState,
    /// The number of events is not what the caller expects.
    CountChanged,
    /// The body, a payload or the number of events is too large.
    TooLarge,
    /// The body is of a kind that the API does not read.
    UnsupportedMediaType,
    /// The request reads well, but a field breaks its rule; the errors say which.
    Invalid,
    /// A bug, or a database that is not as it must be.
    Internal,
    /// As many clients as are allowed follow already.
    Busy,
    /// The database does not answer; the same request may succeed later.
    DatabaseUnavailable,
    /// The host starts.
    Starting,
    /// The host stops.
    Stopping,
}

impl Kind {
    /// Status, code and title.
    const fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BadRequest => (StatusCode::BAD_REQUEST, "bad_request", "The request cannot be read"),
            Self::MalformedJson => (StatusCode::BAD_REQUEST, "malformed_json", "The body is not JSON"),
            Self::InvalidUtf8 => (StatusCode::BAD_REQUEST, "invalid_utf8", "The body is not UTF-8"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "A token is needed"),
            Self::TokenExpired => (StatusCode::UNAUTHORIZED, "token_expired", "The token has expired"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "The token's role does not allow this"),
            Self::CrossSite => (StatusCode::FORBIDDEN, "cross_site", "The request comes from another site"),
            Self::ForeignHost => (StatusCode::FORBIDDEN, "foreign_host", "The Host header names another host"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "Not found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout", "The body took too long"),
            Self::WrongState => (StatusCode::CONFLICT, "wrong_state", "Not in a state for this"),
            Self::CountChanged => (StatusCode::CONFLICT, "count_changed", "The number of events has changed"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "Too large"),
            Self::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body's type is not supported")
            }
            Self::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "A field is not valid"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy", "Too many clients"),
            Self::DatabaseUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "database_unavailable", "The database does not answer")
            }
            Self::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting", "The host is starting"),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping", "The host is stopping"),
        }
    }
}

impl Kind {
    /// The status of its answers.
    pub(super) const fn status(self) -> StatusCode {
        self.parts().0
    }

    /// What programs go by.
    pub(super) const fn code(self) -> &'static str {
        self.parts().1
    }

    /// In a few words.
    pub(super) const fn title(self) -> &'static str {
        self.parts().2
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FieldError {
    /// Which element of an array, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<usize>,
    /// The field, the query parameter or the header.
    pub(super) field: String,
    pub(super) detail: String,
}

impl FieldError {
    pub(super) fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { index: None, field: field.into(), detail: detail.into() }
    }

    pub(super) fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

/// A request that was refused.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    /// How many events it is, where that is what changed.
    count: Option<u64>,
}

/// Why a request was refused. Programs go by `code`.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Document {
    /// `urn:outbox:problem:` and the code.
    #[serde(rename = "type")]
    uri: String,
    /// What the code means, in a few words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// Stays the same in every version.
    code: &'static str,
    /// What is wrong with this request, and what to do. The words may change.
    detail: String,
    /// The fields that break a rule; left out when it is no field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<FieldError>,
    /// How many events it is, where that is what changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), count: None }
    }

    /// Fields that break their rules; at least one.
    pub(super) fn invalid(errors: Vec<FieldError>) -> Self {
        Self::with_errors(Kind::Invalid, errors)
    }

    /// Of this kind, because of these fields; at least one.
    pub(super) fn with_errors(kind: Kind, errors: Vec<FieldError>) -> Self {
        let first = errors.first().map_or_else(String::new, |first| match first.index {
            Some(index) => format!("event {index}: {}", placed(&first.field, &first.detail)),
            None => placed(&first.field, &first.detail),
        });
        let more = errors.len().saturating_sub(1);
        let detail = if more == 0 { first } else { format!("{first} (and {more} more)") };
        Self { errors, ..Self::new(kind, detail) }
    }

    /// One field that breaks its rule.
    pub(super) fn field(field: &str, detail: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, detail)])
    }

    /// With the number of events that it is now.
    pub(super) fn counted(self, count: u64) -> Self {
        Self { count: Some(count), ..self }
    }

    /// A bug: what it was is in the log.
    pub(super) fn internal() -> Self {
        Self::new(Kind::Internal, "the host could not answer; its log says why")
    }

    /// The code that programs go by.
    pub(super) fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// In words.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl Problem {
    /// As the caller is told.
    pub(super) fn document(self) -> Document {
        let (status, code, title) = self.kind.parts();
        Document {
            uri: format!("urn:outbox:problem:{code}"),
            title,
            status: status.as_u16(),
            code,
            detail: self.detail,
            errors: self.errors,
            count: self.count,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let text = serde_json::to_vec(&self.document()).expect("texts and numbers are JSON");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"outbox\""));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The inner detail stays in the log: it may name what is no caller's business.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::Moved { .. }) {
            tracing::warn!(
                target: "outbox::http::problem",
                error = %outbox_event::chain::chain(&error),
                "a request could not be answered: the file of the database was moved"
            );
            let detail = "the file of the host's database was moved, deleted or replaced; the log of the host says what to do";
            return Self::new(Kind::DatabaseUnavailable, detail);
        }
        if error.is_transient() {
            tracing::warn!(
                target: "outbox::http::problem",
                error = %outbox_event::chain::chain(&error),
                "a request could not be answered: the database does not answer"
            );
            return Self::new(Kind::DatabaseUnavailable, "the database does not answer; send the request again later");
        }
        if matches!(error, StoreError::Closed { .. }) {
            return Self::new(Kind::Stopping, "the host is stopping; send the request again when it runs");
        }
        tracing::error!(
            target: "outbox::http::problem",
            error = %outbox_event::chain::chain(&error),
            "a request could not be answered"
        );
        Self::internal()
    }
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Store(error) => error.into(),
            WriteError::Stopped => Self::new(Kind::Stopping, "the host is stopping; send the events again when it runs"),
            WriteError::Hook(_) => {
                tracing::warn!(
                    target: "outbox::http::problem",
                    error = %outbox_event::chain::chain(&error),
                    "events from a request were not written"
                );
                Self::new(Kind::Invalid, "a writer hook of this host refused the events; its log says why")
            }
            error => {
                tracing::error!(
                    target: "outbox::http::problem",
                    error = %outbox_event::chain::chain(&error),
                    "events from a request were not written"
                );
                Self::internal()
            }
        }
    }
}
