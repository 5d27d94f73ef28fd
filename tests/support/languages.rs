//! Programs in other languages, and the SQL that the README tells them.

use std::process::Command;

const README: &str = include_str!("../../README.md");

/// The payload of the INSERTs that the README documents.
pub const DOCUMENTED_PAYLOAD: &str = r#"{"order_id": 42, "total": 99.5}"#;

/// The INSERT that the README tells programs in any language to send to this database: what is documented is what is tested.
///
/// # Panics
/// When the README has none under a comment that names the database.
#[must_use]
pub fn documented_insert(database: &str) -> &'static str {
    let after = README.lines().find(|line| line.starts_with("-- ") && line.contains(database)).and_then(|comment| {
        let (_, after) = README.split_once(comment)?;
        after.split_once(';')
    });
    after.unwrap_or_else(|| panic!("the README documents an INSERT for {database}")).0.trim()
}

/// The INSERT that the README shows first, where it speaks of SQLite alone.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn first_documented_insert() -> &'static str {
    let block = README.split("```sql\n").find(|block| block.starts_with("INSERT")).and_then(|block| block.split_once(';'));
    block.expect("the README documents an INSERT").0
}

/// A Python that has the drivers of all databases.
///
/// # Panics
/// When there is none.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
pub fn python() -> Command {
    let python = std::env::var_os("OUTBOX_TEST_PYTHON").filter(|path| !path.is_empty()).unwrap_or_else(|| {
        panic!(
            "OUTBOX_TEST_PYTHON must name a Python with psycopg, PyMySQL, cloudevents and schemathesis; `cargo xtask test` makes one, and \
             `cargo xtask servers` prints where it is"
        )
    });
    Command::new(python)
}
