//! A text that is never printed.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// A password, token or key. Shown and written as `***`; read from a configuration as text.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps a secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_neither_shown_nor_written() {
        let secret: Secret = serde_json::from_str("\"hunter2\"").expect("a text");
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!((format!("{secret:?}"), serde_json::to_string(&secret).expect("a text")), ("***".into(), "\"***\"".into()));
    }
}
