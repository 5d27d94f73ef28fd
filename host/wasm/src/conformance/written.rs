//! Values as files of cases say them.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// Bytes: text as it is, `{ base64 = "…" }`, and any other value as JSON.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(try_from = "Value")]
pub(super) enum WrittenBytes {
    Plain(Bytes),
    Json(Value),
}

impl TryFrom<Value> for WrittenBytes {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Plain(text.into()),
            Value::Object(object) if object.len() == 1 && object.get("base64").is_some_and(Value::is_string) => {
                Self::Plain(base64(object["base64"].as_str().unwrap_or_default())?)
            }
            json => Self::Json(json),
        })
    }
}

impl WrittenBytes {
    pub(super) fn bytes(&self) -> Bytes {
        match self {
            Self::Plain(bytes) => bytes.clone(),
            Self::Json(json) => json.to_string().into(),
        }
    }
}

pub(super) fn base64(text: &str) -> Result<Bytes, String> {
    let decoded = data_encoding::BASE64.decode(text.as_bytes());
    decoded.map(Bytes::from).map_err(|error| format!("`{text}` is not standard base64: {error}"))
}

/// An absolute URL, in the one way in which requests have it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) struct Url(String);

impl TryFrom<String> for Url {
    type Error = String;

    fn try_from(url: String) -> Result<Self, String> {
        crate::canonical_url(&url).map(Self).map_err(|reason| format!("the URL `{url}` cannot be asked: {reason}"))
    }
}

impl Url {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
