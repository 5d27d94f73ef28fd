//! What to add to a manifest, and where: a line below a `[table]` belongs to that table.

/// A line that belongs to no table.
pub(crate) fn at_the_top(line: &str, plugin: &str) -> String {
    format!("add `{line}` at the top of {plugin}.toml, above the first [table]")
}

/// A table that the manifest does not have yet, with its first line.
pub(crate) fn at_the_end(table: &str, line: &str, plugin: &str) -> String {
    format!("add `[{table}]`, and below it `{line}`, at the end of {plugin}.toml")
}
