//! The four states of a row.

use serde::{Deserialize, Serialize};

/// Where an event stands. DONE and DEAD absorb; only a replay leaves DEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub enum Status {
    /// Written, not yet tried to an end.
    New = 0,
    /// Its listener was done with it.
    Done = 1,
    /// An attempt failed; another one follows.
    Retry = 2,
    /// Given up, until somebody replays it.
    Dead = 3,
}

impl Status {
    /// The number in the `status` column.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The status of a number in the column; `None` for a number that has none.
    #[doc(hidden)] // for stores
    #[must_use]
    pub const fn from_code(code: i32) -> Option<Self> {
        match code {
            0 => Some(Self::New),
            1 => Some(Self::Done),
            2 => Some(Self::Retry),
            3 => Some(Self::Dead),
            _ => None,
        }
    }

    /// The name that people and the API see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Done => "DONE",
            Self::Retry => "RETRY",
            Self::Dead => "DEAD",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
