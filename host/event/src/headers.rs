//! Headers: what travels beside the payload.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The header that ties together what belongs to one piece of business.
pub const CORRELATION_ID: &str = "correlation-id";
/// The header that names the writer's transaction.
pub const TRANSACTION_ID: &str = "transaction-id";
/// The header of the W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
/// The header in which each system that a trace has passed keeps what it needs, beside [`TRACEPARENT`].
pub const TRACESTATE: &str = "tracestate";

const MAX_KEY_CHARS: usize = 256;
const MAX_BYTES: usize = 256 * 1024;
/// Each takes far more memory than its bytes.
const MAX_HEADERS: usize = 1_000;
/// About what one header takes beside its bytes.
const OVERHEAD: usize = 96;

/// Why a header is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// A header without a name.
    #[error("a header's key is empty (its value has {value_bytes} bytes); give it a name")]
    EmptyKey {
        /// The size of the value, to find it by.
        value_bytes: usize,
    },
    /// The name is too long.
    #[error("the header key {key:?}… has {chars} characters; at most 256 are allowed")]
    LongKey {
        /// Its first 32 characters.
        key: String,
        /// How many it has.
        chars: usize,
    },
    /// The name or the value holds a character that could forge another header further down the line.
    #[error("the header {key:?} holds the control character {bad:?}; remove it, or move the text into the payload")]
    Control {
        /// The header.
        key: String,
        /// The first such character.
        bad: char,
    },
    /// There are too many of them.
    #[error("there are {count} headers; at most 1000 are allowed: move data into the payload")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// All of them together are too large.
    #[error("the headers have {bytes} bytes; at most 262144 are allowed: move data into the payload")]
    TooLarge {
        /// How many bytes keys and values have.
        bytes: usize,
    },
}

/// String to string, sorted by key, no empty key, no control characters, 1,000 of them and 256 KiB in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// Checks the headers and keeps them.
    ///
    /// # Errors
    /// When one of them breaks a rule, or all of them are too large.
    pub fn new(headers: impl IntoIterator<Item = (String, String)>) -> Result<Self, HeadersError> {
        let headers: BTreeMap<String, String> = headers.into_iter().collect();
        if headers.len() > MAX_HEADERS {
            return Err(HeadersError::TooMany { count: headers.len() });
        }
        let mut bytes = 0;
        for (key, value) in &headers {
            if key.is_empty() {
                return Err(HeadersError::EmptyKey { value_bytes: value.len() });
            }
            let chars = key.chars().count();
            if chars > MAX_KEY_CHARS {
                return Err(HeadersError::LongKey { key: key.chars().take(32).collect(), chars });
            }
            if let Some(bad) = key.chars().chain(value.chars()).find(|c| c.is_control() && *c != '\t') {
                return Err(HeadersError::Control { key: key.clone(), bad });
            }
            bytes += key.len() + value.len();
        }
        if bytes > MAX_BYTES {
            return Err(HeadersError::TooLarge { bytes });
        }
        Ok(Self(headers))
    }

    /// Roughly how much memory they take, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len() + OVERHEAD).sum()
    }

    /// The value of a header, if it is there.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Adds a header that breaks no rule of its own; false when there is one of this name, or no room for it.
    pub(super) fn add(&mut self, key: &str, value: &str) -> bool {
        let bytes: usize = self.0.iter().map(|(key, value)| key.len() + value.len()).sum();
        let has_room = bytes + key.len() + value.len() <= MAX_BYTES && self.0.len() < MAX_HEADERS;
        let fits = has_room && !self.0.contains_key(key);
        if fits {
            self.0.insert(key.to_owned(), value.to_owned());
        }
        fits
    }

    /// All headers, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        HeaderPairs::deserialize(deserializer)?.checked().map_err(serde::de::Error::custom)
    }
}

/// What a text has for headers, not yet checked. Of more pairs than may be there, the others are only counted: eight megabytes of
/// tiny ones would take twenty times their size and a good part of a second.
#[derive(Debug, Default)]
pub struct HeaderPairs {
    kept: BTreeMap<String, String>,
    left_out: usize,
}

impl HeaderPairs {
    /// As [`Headers::new`].
    ///
    /// # Errors
    /// When one of the headers breaks a rule, or all of them are too large.
    pub fn checked(self) -> Result<Headers, HeadersError> {
        if self.left_out > 0 {
            return Err(HeadersError::TooMany { count: MAX_HEADERS + self.left_out });
        }
        Headers::new(self.kept)
    }
}

impl<'de> Deserialize<'de> for HeaderPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;

        impl<'de> Visitor<'de> for Counting {
            type Value = HeaderPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderPairs, A::Error> {
                let mut pairs = HeaderPairs::default();
                for _ in 0..MAX_HEADERS {
                    let Some((key, value)) = map.next_entry()? else { return Ok(pairs) };
                    pairs.kept.insert(key, value);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    pairs.left_out += 1;
                }
                Ok(pairs)
            }
        }

        deserializer.deserialize_map(Counting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str, value: &str) -> String {
        Headers::new([(key.to_owned(), value.to_owned())]).expect_err("refused").to_string()
    }

    #[test]
    fn each_rule_has_its_own_message() {
        assert!(refused("", "abc").contains("key is empty (its value has 3 bytes)"));
        assert!(refused(&"k".repeat(257), "").contains("has 257 characters"));
        assert!(refused("x", "a\r\nset-cookie: b").contains("\"x\" holds the control character '\\r'"));
        assert!(refused("x", &"v".repeat(262_144)).contains("have 262145 bytes"));
        let many = |count: usize| Headers::new((0..count).map(|number| (format!("k{number}"), String::new())));
        assert!(many(1_001).expect_err("refused").to_string().contains("there are 1001 headers"));
        assert!(!many(1_000).expect("good").add("one more", ""));
    }

    #[test]
    fn of_too_many_headers_in_a_text_no_more_are_kept_than_there_may_be() {
        let text = |count: usize| {
            let pairs: Vec<String> = (0..count).map(|number| format!(r#""{number}":"""#)).collect();
            format!("{{{}}}", pairs.join(","))
        };

        let pairs: HeaderPairs = serde_json::from_str(&text(700_000)).expect("an object of strings");

        assert_eq!((pairs.kept.len(), pairs.left_out), (1_000, 699_000));
        assert_eq!(pairs.checked(), Err(HeadersError::TooMany { count: 700_000 }));
        let most: Headers = serde_json::from_str(&text(1_000)).expect("as many as may be");
        assert_eq!(most.len(), 1_000);
        assert!(serde_json::from_str::<Headers>(&text(1_001)).is_err() && serde_json::from_str::<Headers>("[]").is_err());
    }

    #[test]
    fn a_header_is_added_where_there_is_room_and_none_of_its_name() {
        let mut headers = Headers::new([("x".to_owned(), "v".repeat(MAX_BYTES - 10))]).expect("good");
        assert!(!headers.add("x", ""), "it is the writer's own");
        assert!(!headers.add("tooth", "aches"), "one byte more than there is room for");
        assert!(headers.add("tooth", "ache"));
        assert_eq!((headers.get("tooth"), headers.len()), (Some("ache"), 2));
    }
}
