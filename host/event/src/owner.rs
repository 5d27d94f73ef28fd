//! Who a listener belongs to.

use std::fmt;
use std::sync::Arc;

/// Who registered a listener. Only its owner replaces or removes it.
///
/// A text always names a plugin, so no file name can stand for the application's own listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The application that embeds the host.
    Native,
    /// The plugin of this name.
    Plugin(Arc<str>),
    /// A relay to the sink of this name.
    Sink(Arc<str>),
}

impl From<&str> for Owner {
    /// The plugin of this name.
    fn from(name: &str) -> Self {
        Self::Plugin(Arc::from(name))
    }
}

/// `native code` or `the sink NAME`, which are no plugin's names because of their spaces, or the plugin's name.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("native code"),
            Self::Plugin(name) => f.write_str(name),
            Self::Sink(name) => write!(f, "the sink {name}"),
        }
    }
}
