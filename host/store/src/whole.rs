//! A row as people and programs are shown it whole.

use serde::Serialize;
use serde_json::value::RawValue;

use super::Record;

/// A row with its payload: JSON as it was written, other text as text, anything else as base64; without one where it was left out.
/// Written as one JSON object it is one line.
#[derive(Serialize)]
pub struct Whole<'a> {
    #[serde(flatten)]
    record: &'a Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl Record {
    /// The row with its payload.
    #[must_use]
    pub fn whole(&self) -> Whole<'_> {
        let Some(bytes) = self.payload.as_deref() else { return Whole { record: self, payload: None, payload_base64: None } };
        let text = std::str::from_utf8(bytes).ok();
        let json = text.filter(|_| is_json(&self.content_type)).and_then(|text| {
            // A payload of several lines would tear a document of one line apart.
            let text = if text.contains('\n') {
                serde_json::from_str::<serde_json::Value>(text).ok()?.to_string()
            } else {
                text.to_owned()
            };
            RawValue::from_string(text).ok()
        });
        let is_text = self.content_type.starts_with("text/");
        let payload = json.or_else(|| text.filter(|_| is_text).and_then(|text| serde_json::value::to_raw_value(text).ok()));
        let payload_base64 = payload.is_none().then(|| data_encoding::BASE64.encode(bytes));
        Whole { record: self, payload, payload_base64 }
    }

    /// The row with its payload in base64, whatever it is: not a byte is changed on the way.
    #[doc(hidden)] // for the API
    #[must_use]
    pub fn whole_in_base64(&self) -> Whole<'_> {
        let payload_base64 = self.payload.as_deref().map(|bytes| data_encoding::BASE64.encode(bytes));
        Whole { record: self, payload: None, payload_base64 }
    }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence == "application/json" || essence.ends_with("+json")
}
