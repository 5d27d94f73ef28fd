//! Which listener answers which route, as far as the host that shows the page knows: its own listeners, and the plugins of
//! other live hosts. Hosts do not tell each other of native listeners.

use std::sync::Arc;

use outbox_event::{Owner, PluginState, PluginStatus, Route};
use outbox_listener::{Listeners, RegistryEntry};
use outbox_store::NodeRecord;

use super::plugins::{self, LivePlugin};

/// The listeners of the live hosts.
#[derive(Debug)]
pub(crate) struct RouteListeners<'a> {
    plugins: Vec<LivePlugin>,
    own: &'a Listeners,
    /// Whether another host is alive, which may have native listeners.
    has_others: bool,
}

/// Who answers a route.
#[derive(Debug)]
pub(crate) enum RouteListener<'a> {
    /// A plugin of a live host.
    Plugin(&'a PluginStatus),
    /// Native code or a relay of this host.
    Own(Owner),
    /// None is known; another live host may have a listener.
    Untold,
    /// No live host has a listener.
    Nobody,
}

impl<'a> RouteListeners<'a> {
    /// The listeners of `nodes`; `owner`, `plugins` and `own` belong to the host that shows the page.
    pub(crate) fn of(nodes: &[NodeRecord], owner: &str, plugins: &[PluginStatus], own: &'a Listeners) -> Self {
        let has_others = nodes.iter().any(|node| node.alive && node.owner != owner);
        Self { plugins: plugins::with_own(nodes, owner, plugins), own, has_others }
    }

    pub(crate) fn to(&self, route: &Route) -> RouteListener<'_> {
        let answers = |plugin: &PluginStatus| plugin.routes.contains(route) && is_answering(plugin.state);
        if let Some(served) = self.plugins.iter().find(|served| answers(&served.plugin)) {
            return RouteListener::Plugin(&served.plugin);
        }
        let own: Option<Arc<RegistryEntry>> = self.own.find(route);
        match own {
            Some(entry) => RouteListener::Own(entry.owner.clone()),
            None if self.has_others => RouteListener::Untold,
            None => RouteListener::Nobody,
        }
    }
}

/// Whether a plugin in this state answers its routes, even if it is paused for a while.
const fn is_answering(state: PluginState) -> bool {
    match state {
        PluginState::Serving | PluginState::ServingOlder | PluginState::Paused | PluginState::Unknown => true,
        PluginState::Loads | PluginState::OlderLoads | PluginState::Failed | PluginState::Loading => false,
    }
}
