//! The plugins of a host, read from its row.

use outbox_event::PluginStatus;

use crate::store::NodeRecord;

/// The plugins that a host lists in its row; empty if it lists no plugins. Skips each plugin that cannot be read, because the host
/// may be of another version.
#[must_use]
pub fn plugins(node: &NodeRecord) -> Vec<PluginStatus> {
    node.plugins.as_deref().map(PluginStatus::list).unwrap_or_default()
}
