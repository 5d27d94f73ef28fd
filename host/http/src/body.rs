//! Reading the body of a request within its limits.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use outbox_event::wording::Misfit;
use serde::de::DeserializeOwned;

use super::host::Host;
use super::problem::{Kind, Problem};

/// How much more than is allowed is read and thrown away: a client that is cut off while it sends may never see the answer.
const PATIENCE: usize = 4;

/// The whole body.
///
/// # Errors
/// 413 when it is larger than `most` bytes, 408 when it does not arrive in time, 400 when it breaks off.
pub(super) async fn whole(headers: &HeaderMap, body: Body, most: usize, within: Duration) -> Result<Bytes, Problem> {
    if let Some(coding) = headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        let detail = format!("the body is encoded as {coding:?}; send it as it is");
        return Err(Problem::new(Kind::UnsupportedMediaType, detail));
    }
    let read = tokio::time::timeout(within, read(body, most)).await;
    read.unwrap_or_else(|_| Err(Problem::new(Kind::BodyTimeout, format!("the body did not arrive within {within:?}"))))
}

async fn read(body: Body, most: usize) -> Result<Bytes, Problem> {
    let mut chunks = body.into_data_stream();
    let (mut whole, mut length) = (BytesMut::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Problem::new(Kind::BadRequest, format!("the body was cut off: {error}")))?;
        length = length.saturating_add(chunk.len());
        if length <= most {
            whole.extend_from_slice(&chunk);
        } else {
            whole = BytesMut::new();
            if length > most.saturating_mul(PATIENCE) {
                break;
            }
        }
    }
    if length > most {
        let detail = format!("the body has more than {most} bytes; send it in parts, or raise http.max_body");
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    Ok(whole.freeze())
}

/// The media type of a request, without its parameters, in lower case; empty when it says none.
///
/// # Errors
/// 415 for a text that is not UTF-8.
pub(super) fn media_type(headers: &HeaderMap) -> Result<String, Problem> {
    let value = headers
        .get(header::CONTENT_TYPE)
        .map_or(Ok(""), |value| value.to_str())
        .map_err(|_| Problem::new(Kind::UnsupportedMediaType, "the Content-Type header cannot be read"))?;
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    for part in parts {
        let Some((name, charset)) = part.split_once('=') else { continue };
        let is_utf8 = ["utf-8", "utf8", "us-ascii"].iter().any(|name| charset.trim_matches('"').eq_ignore_ascii_case(name));
        if name.trim().eq_ignore_ascii_case("charset") && !is_utf8 {
            return Err(Problem::new(Kind::UnsupportedMediaType, format!("the charset is {charset}; send UTF-8")));
        }
    }
    Ok(essence)
}

/// The body as text.
///
/// # Errors
/// 400.
pub(super) fn text(body: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|error| {
        Problem::new(Kind::InvalidUtf8, format!("the body is not UTF-8 from its byte {} on", error.valid_up_to()))
    })
}

/// What an operator asks for, as JSON; its defaults when there is no body.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<Host> for Asked<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, host: &Host) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = whole(&parts.headers, body, host.config.max_body.as_usize(), host.config.body_timeout).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        let kind = media_type(&parts.headers)?;
        if kind != "application/json" {
            let detail = format!("the body's Content-Type is `{kind}`; send application/json");
            return Err(Problem::new(Kind::UnsupportedMediaType, detail));
        }
        let text = text(&body)?;
        // A structure can be read from a list, too, whose elements then are its fields in some order.
        if text.trim_start().starts_with('[') {
            return Err(Problem::field("body", "it is a list; send an object"));
        }
        let read = serde_json::from_str(text);
        read.map(Self).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                let Misfit { path, words } = Misfit::of_json::<T>(text.as_bytes(), &error);
                Problem::field(if path.is_empty() { "body" } else { &path }, words)
            }
            _ => Problem::new(Kind::MalformedJson, error.to_string()),
        })
    }
}
