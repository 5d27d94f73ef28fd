//! Which listener answers which route, as far as the host that shows the page knows: all of its own, and of other live hosts the
//! plugins, since a host tells others of nothing else.

use std::sync::Arc;

use super::plugins::{self, LivePlugin};
use crate::event::Route;
use crate::listener::{Listeners, Owner, RegistryEntry};
use crate::node::{PluginState, PluginStatus};
use crate::store::NodeRecord;

/// What live hosts answer.
#[derive(Debug)]
pub(crate) struct RouteListeners<'a> {
    plugins: Vec<LivePlugin>,
    own: &'a Listeners,
    /// Whether another host is alive, which may have listeners that it does not tell of.
    has_others: bool,
}

/// Who answers a route.
#[derive(Debug)]
pub(crate) enum RouteListener<'a> {
    /// A plugin of a live host.
    Plugin(&'a PluginStatus),
    /// Native code or a relay of this host.
    Own(Owner),
    /// Nobody that is known; another live host may have a listener.
    Untold,
    /// Nobody.
    Nobody,
}

impl<'a> RouteListeners<'a> {
    /// Those of `nodes`; `owner`, `plugins` and `own` are those of the host that shows the page.
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

/// Whether a plugin in this state has a listener, be it paused for a while.
const fn is_answering(state: PluginState) -> bool {
    match state {
        PluginState::Serving | PluginState::ServingOlder | PluginState::Paused | PluginState::Unknown => true,
        PluginState::Loads | PluginState::OlderLoads | PluginState::Failed | PluginState::Loading => false,
    }
}
