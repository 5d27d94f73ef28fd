//! The name of the table.

use std::fmt;
use std::str::FromStr;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// The name of the outbox table: `^[A-Za-z_][A-Za-z0-9_]{0,47}$`. Default `outbox_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName(String);

const DEFAULT: &str = "outbox_event";

impl TableName {
    /// Checks the name.
    ///
    /// # Errors
    /// When it is no plain identifier, or longer than 48 characters; the text says what is allowed.
    pub fn new(name: &str) -> Result<Self, String> {
        let mut chars = name.chars();
        let good = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.len() <= 48;
        if good {
            Ok(Self(name.to_owned()))
        } else {
            Err(format!("`{name}` is not a table name; use 1 to 48 letters, digits and underscores, not a digit first"))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A statement for this table. Statements are written for `outbox_event`, so that they can be pasted into a console.
    pub(super) fn sql(&self, statement: &'static str) -> SqlStr {
        if self.0 == DEFAULT {
            SqlStr::from_static(statement)
        } else {
            // Safe: the only text put in is a checked identifier.
            AssertSqlSafe(statement.replace(DEFAULT, &self.0)).into_sql_str()
        }
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TableName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text)
    }
}

impl<'de> serde::Deserialize<'de> for TableName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for TableName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_identifier_becomes_part_of_a_statement() {
        assert!(TableName::new("shop_outbox2").is_ok());
        for bad in ["", "2x", "a b", "a;DROP TABLE x", "a\"", "ä", &"x".repeat(49)] {
            assert!(TableName::new(bad).is_err(), "{bad}");
        }
        let table = TableName::new("shop").expect("valid");
        assert_eq!(table.sql("SELECT 1 FROM outbox_event").as_str(), "SELECT 1 FROM shop");
    }
}
