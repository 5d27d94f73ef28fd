//! What runs in the background of an outbox, and the order in which it is stopped.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::loaded::Loaded;
use crate::dispatcher::Dispatcher;
use crate::purge::Purge;

/// What runs, each part `None` in a mode without it.
pub(super) struct Running {
    pub(super) loaded: Loaded,
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) poller: Option<JoinHandle<()>>,
    pub(super) learner: Option<JoinHandle<()>>,
    pub(super) purge: Option<(Arc<Purge>, JoinHandle<()>)>,
    pub(super) routes: Option<JoinHandle<()>>,
    pub(super) heartbeat: Option<JoinHandle<()>>,
    /// What looks at the table and its schema for whoever watches this outbox.
    pub(super) watchers: Vec<JoinHandle<()>>,
    pub(super) notifiers: Vec<JoinHandle<()>>,
}

/// What tells the parts to end.
pub(super) struct Signals {
    pub(super) stopped: watch::Sender<bool>,
    /// Set last: as long as this process holds events, it is a node.
    pub(super) left: watch::Sender<bool>,
}

impl Running {
    /// Stops the parts in order, and returns when all have ended.
    pub(super) async fn stop(self, signals: &Signals) {
        if let Some((purge, _)) = &self.purge {
            purge.close();
        }
        signals.stopped.send_replace(true);
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.stopping();
        }
        if let Some((_, task)) = self.purge {
            ended("purge", task).await;
        }
        if let Some(task) = self.poller {
            ended("poller", task).await;
        }
        if let Some(task) = self.learner {
            ended("learner", task).await;
        }
        if let Some(dispatcher) = self.dispatcher {
            dispatcher.stop().await;
        }
        if let Some(task) = self.routes {
            ended("route keeper", task).await;
        }
        for task in self.watchers {
            ended("watcher", task).await;
        }
        for task in self.notifiers {
            ended("notifier", task).await;
        }
        signals.left.send_replace(true);
        if let Some(task) = self.heartbeat {
            ended("heartbeat", task).await;
        }
        self.loaded.end().await;
    }
}

async fn ended(what: &str, task: JoinHandle<()>) {
    if let Err(error) = task.await {
        tracing::error!(%error, "the {what} did not end well");
    }
}
