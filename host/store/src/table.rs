//! The name of the table.

use std::fmt;
use std::str::FromStr;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// The name of the outbox table: `^[A-Za-z_][A-Za-z0-9_]{0,47}$`, in a schema of such a name or where the database looks by
/// itself. Default `outbox_event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    name: String,
    schema: Option<String>,
}

const DEFAULT: &str = "outbox_event";

impl TableName {
    /// Checks the name.
    ///
    /// # Errors
    /// When it is no plain identifier, or longer than 48 characters; the text says what is allowed.
    pub fn new(name: &str) -> Result<Self, String> {
        let name = checked(name, "table")?;
        Ok(Self { name, schema: None })
    }

    /// This table in a schema. For PostgreSQL alone: on MySQL a schema is the database that the address names, SQLite has none.
    ///
    /// # Errors
    /// As [`TableName::new`].
    pub fn in_schema(self, schema: &str) -> Result<Self, String> {
        Ok(Self { schema: Some(checked(schema, "schema")?), ..self })
    }

    /// The name as text, without its schema.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The schema, when one was named.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// A statement for this table. Statements are written for `outbox_event`, so that they can be pasted into a console.
    pub(super) fn sql(&self, statement: &'static str) -> SqlStr {
        if self.schema.is_none() && self.name == DEFAULT {
            SqlStr::from_static(statement)
        } else {
            // Safe: the only text put in is checked identifiers.
            AssertSqlSafe(statement.replace(DEFAULT, &self.in_sql())).into_sql_str()
        }
    }

    /// The name as statements contain it. The schema is quoted, since it may be a reserved word, and in lower case, as the server reads
    /// names without quotes.
    fn in_sql(&self) -> String {
        match &self.schema {
            None => self.name.clone(),
            Some(schema) => format!("\"{}\".{}", schema.to_ascii_lowercase(), self.name),
        }
    }

    /// A text for this table without its schema: names of indexes and constraints cannot carry one.
    #[cfg(feature = "postgres")]
    pub(super) fn unqualified(&self, text: &str) -> String {
        text.replace(DEFAULT, &self.name)
    }
}

fn checked(name: &str, what: &str) -> Result<String, String> {
    let mut chars = name.chars();
    let good = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 48;
    if good {
        Ok(name.to_owned())
    } else {
        Err(format!("`{name}` is not a {what} name; use 1 to 48 letters, digits and underscores, not a digit first"))
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self { name: DEFAULT.to_owned(), schema: None }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            None => f.write_str(&self.name),
            Some(schema) => write!(f, "{schema}.{}", self.name),
        }
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
        serializer.collect_str(self)
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
        assert!(table.clone().in_schema("a.b").is_err());
        let table = table.in_schema("Order").expect("valid");
        assert_eq!(table.sql("SELECT 1 FROM outbox_event_partition").as_str(), "SELECT 1 FROM \"order\".shop_partition");
        assert_eq!((table.as_str(), table.schema(), table.to_string().as_str()), ("shop", Some("Order"), "Order.shop"));
    }
}
