//! Tokens: what their bearers may do, and what the host keeps of them.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use outbox_event::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What every token begins with, so that people and scanners of leaked secrets know one.
const PREFIX: &str = "obx_";

/// What a caller may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at everything but payloads.
    Viewer,
    /// Look at payloads; write, replay, skip and discard events; pause and resume routes.
    Operator,
    /// Purge.
    Admin,
}

impl Role {
    /// Its name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A token, as the host knows it: never the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Who uses it; the audit log shows this name.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// The SHA-256 of the token's text: 64 hex digits.
    pub sha256: TokenHash,
    /// When it stops being valid. Default never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Token {
    /// A new token of 32 random bytes: the text for its bearer, and what the host keeps of it.
    #[must_use]
    pub fn generate(name: impl Into<String>, role: Role, expires_at: Option<Timestamp>) -> (String, Self) {
        let secret: [u8; 32] = rand::random();
        let text = format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&secret));
        let sha256 = TokenHash::of(&text);
        (text, Self { name: name.into(), role, sha256, expires_at })
    }
}

/// The SHA-256 of a token. Of 32 random bytes it tells nothing, so that it may stand in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Whether both are of one token. In constant time: how long it takes tells nothing.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A text that is not the SHA-256 of a token.
#[derive(Debug, thiserror::Error)]
#[error("it is not a SHA-256 in 64 hex digits; `outbox token new` prints one, and the token itself does not belong here")]
pub struct TokenHashError;

impl FromStr for TokenHash {
    type Err = TokenHashError;

    fn from_str(text: &str) -> Result<Self, TokenHashError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| TokenHashError)?;
        bytes.try_into().map(Self).map_err(|_| TokenHashError)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_long_and_unlike_the_last_and_its_hash_reads_back() {
        let (first, token) = Token::generate("a", Role::Viewer, None);
        let (second, _) = Token::generate("a", Role::Viewer, None);
        assert!(first.starts_with(PREFIX) && first.len() == PREFIX.len() + 43 && first != second, "{first}");
        assert_eq!(token.sha256.to_string().parse::<TokenHash>().expect("its own text"), token.sha256);
        assert!(first.parse::<TokenHash>().is_err(), "whoever puts the token into the file is told");
    }
}
