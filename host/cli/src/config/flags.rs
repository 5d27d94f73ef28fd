//! What the commands that this call prints need to meet the same place.

/// What a command that this call tells of has to be given to see the same file and the same database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    pub(super) text: String,
    /// Whether they name a host, and no database.
    pub(crate) are_of_host: bool,
}

impl Flags {
    /// The keys that say which tables are meant.
    pub(super) const KEYS: [&str; 7] = [
        "database.url",
        "database.user",
        "database.host",
        "database.port",
        "database.name",
        "database.table",
        "database.schema",
    ];

    /// The command as it can be typed after this one.
    pub(crate) fn command(&self, words: &str) -> String {
        format!("{words}{}", self.text)
    }
}
