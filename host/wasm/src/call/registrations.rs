//! A plugin as the registry takes it: one listener for each of its routes.

use std::sync::Arc;
use std::time::Duration;

use outbox_event::Route;
use outbox_listener::{Concurrency, Registration};

use super::PluginListener;
use crate::load::plugin::Plugin;
use crate::manifest::{Isolation, Limits};

/// The dispatcher's own deadline comes so much later than the plugin's, which can say more.
const DEADLINE_SLACK: Duration = Duration::from_secs(1);

impl PluginListener {
    /// One listener for each route of a plugin, as it is and as the registry takes it.
    pub(crate) fn of(plugin: &Arc<Plugin>) -> (Vec<Arc<Self>>, Vec<Registration>) {
        let Limits { deadline, concurrency, .. } = plugin.manifest.limits;
        // Half of the workers stay free for others, whatever one plugin does.
        let calls = concurrency.unwrap_or((plugin.linked.engine.workers / 2).max(1));
        // An event that waits for a call with others, which then breaks off, is called alone afterwards.
        let longest = if plugin.on_events.is_some() && plugin.isolation() == Isolation::Batch {
            deadline.saturating_mul(3)
        } else {
            deadline
        };
        let register = |(route, listener): (&Route, &Arc<Self>)| Registration {
            route: route.clone(),
            listener: listener.clone(),
            retry: plugin.manifest.retry.map(|retry| retry.policy()),
            max_attempts: plugin.manifest.retry.and_then(|retry| retry.max_attempts),
            deadline: Some(longest.saturating_add(DEADLINE_SLACK)),
            concurrency: Some(Concurrency::OfOwner(calls)),
            breaker: None,
        };
        let listeners: Vec<_> = plugin.routes.iter().map(|_| Arc::new(Self::new(plugin.clone()))).collect();
        let registrations = plugin.routes.iter().zip(&listeners).map(register).collect();
        (listeners, registrations)
    }
}
