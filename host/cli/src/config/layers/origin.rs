//! Where a value comes from.

use std::fmt;

/// What set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody.
    Default,
    /// A line of a file.
    File(String, usize),
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl Origin {
    /// A later layer has the greater number, and overrides the others.
    pub(super) fn layer(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(..) => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(name, line) => write!(f, "{name}:{line}"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}
