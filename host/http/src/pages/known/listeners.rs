//! Which listener answers which route, as far as the host that shows the page knows: its own listeners, and the plugins of
//! other live hosts. Hosts do not tell each other of native listeners.

use std::collections::HashMap;
use std::sync::Arc;

use outbox::node::{DownSink, OpenBreakers};
use outbox_event::time::Timestamp;
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
    /// The sinks that are down on at least one host, by name.
    sinks_down: HashMap<String, DownSink>,
    /// The open breakers of the live hosts.
    breakers: OpenBreakers,
}

/// The listener of a route.
#[derive(Debug)]
pub(crate) enum RouteListener<'a> {
    /// A plugin of a live host.
    Plugin(&'a PluginStatus),
    /// Native code or a relay of this host.
    Own(Owner),
    /// A relay of this host, whose sink is down on at least one host.
    DownSink(Owner, &'a DownSink),
    /// Unknown: another live host may have a listener.
    Unknown,
    /// No live host has a listener.
    Missing,
}

impl<'a> RouteListeners<'a> {
    /// The listeners of `nodes`; `owner`, `plugins` and `own` belong to the host that shows the page.
    pub(crate) fn of(nodes: &[NodeRecord], owner: &str, plugins: &[PluginStatus], own: &'a Listeners) -> Self {
        let has_others = nodes.iter().any(|node| node.alive && node.owner != owner);
        let plugins = plugins::with_own(nodes, owner, plugins);
        Self { plugins, own, has_others, sinks_down: HashMap::new(), breakers: OpenBreakers::of(nodes) }
    }

    /// With the sinks that are down.
    pub(crate) fn with_down(mut self, sinks: Vec<DownSink>) -> Self {
        self.sinks_down = sinks.into_iter().map(|sink| (sink.name.clone(), sink)).collect();
        self
    }

    /// For how long the breaker of a route has been open, where, and when it is tried again; `None` if none is open.
    pub(crate) fn open_breaker(&self, route: &Route, now: Timestamp) -> Option<String> {
        self.breakers.words(route, now)
    }

    /// How many breakers are open on routes that their hosts do not name, in words; `None` if every open breaker is named.
    pub(crate) fn more_open_breakers(&self) -> Option<String> {
        self.breakers.more_words()
    }

    /// Whether the breaker of a route may be open although no host names it: a plugin with an open breaker answers the route.
    pub(crate) fn may_have_open_breaker(&self, route: &Route) -> bool {
        let has_open_breaker =
            |one: &LivePlugin| one.plugin.state == PluginState::BreakerOpen && one.plugin.routes.contains(route);
        self.breakers.more() > 0 && self.plugins.iter().any(has_open_breaker)
    }

    pub(crate) fn to(&self, route: &Route) -> RouteListener<'_> {
        let answers = |plugin: &PluginStatus| plugin.routes.contains(route) && is_answering(plugin.state);
        if let Some(served) = self.plugins.iter().find(|served| answers(&served.plugin)) {
            return RouteListener::Plugin(&served.plugin);
        }
        let own: Option<Arc<RegistryEntry>> = self.own.find(route);
        match own {
            Some(entry) => {
                let owner = entry.owner.clone();
                let down = match &owner {
                    Owner::Sink(name) => self.sinks_down.get(&**name),
                    _ => None,
                };
                match down {
                    Some(sink) => RouteListener::DownSink(owner, sink),
                    None => RouteListener::Own(owner),
                }
            }
            None if self.has_others => RouteListener::Unknown,
            None => RouteListener::Missing,
        }
    }
}

/// Whether a plugin in this state answers its routes, even if its breaker is open.
const fn is_answering(state: PluginState) -> bool {
    match state {
        PluginState::Serving | PluginState::ServingOlder | PluginState::BreakerOpen | PluginState::Unknown => true,
        PluginState::Loads | PluginState::OlderLoads | PluginState::Failed | PluginState::Loading => false,
    }
}
