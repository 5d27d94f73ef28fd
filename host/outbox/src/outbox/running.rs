//! What runs in the background of an outbox, and the order in which it is stopped.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::loaded::Loaded;
use crate::dispatcher::{Dispatcher, StopTimes};
use crate::partition::Partitions;
use crate::purge::Purge;

/// What runs, each part `None` in a mode without it.
pub(super) struct Running {
    pub(super) loaded: Loaded,
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) poller: Option<JoinHandle<()>>,
    pub(super) learner: Option<JoinHandle<()>>,
    pub(super) partitions: Option<Arc<Partitions>>,
    pub(super) purge: Option<(Arc<Purge>, JoinHandle<()>)>,
    pub(super) routes: Option<JoinHandle<()>>,
    pub(super) heartbeat: Option<JoinHandle<()>>,
    pub(super) session: Option<JoinHandle<()>>,
    pub(super) change_log: Option<JoinHandle<()>>,
    /// What looks at the table and its schema for whoever watches this outbox.
    pub(super) watchers: Vec<JoinHandle<()>>,
    pub(super) notifiers: Vec<JoinHandle<()>>,
}

/// What tells the parts to end.
pub(super) struct Signals {
    pub(super) stopped: watch::Sender<bool>,
    /// Set last: as long as this process holds events, it is a host.
    pub(super) left: watch::Sender<bool>,
}

impl Running {
    /// Tells the parts to end, and returns when all have ended. A part that stands in a statement is waited for no longer than
    /// the times of the stop allow; it ends by itself after that.
    pub(super) async fn stop(self, signals: &Signals) {
        if let Some((purge, _)) = &self.purge {
            purge.close();
        }
        signals.stopped.send_replace(true);
        if let Some(partitions) = &self.partitions {
            partitions.close();
        }
        let times = self.dispatcher.as_ref().map_or_else(|| StopTimes::begin(Duration::ZERO), Dispatcher::stop_times);
        if let Some(dispatcher) = self.dispatcher {
            let poller = async {
                if let Some(task) = self.poller {
                    ended("poller", task, times.give_up_at).await;
                }
            };
            dispatcher.stop(poller, times).await;
        }
        if let Some((_, task)) = self.purge {
            ended("purge", task, times.over_at).await;
        }
        if let Some(task) = self.learner {
            ended("learner", task, times.over_at).await;
        }
        if let Some(task) = self.routes {
            ended("route keeper", task, times.over_at).await;
        }
        for task in self.watchers {
            ended("watcher", task, times.over_at).await;
        }
        for task in self.notifiers {
            ended("notifier", task, times.over_at).await;
        }
        signals.left.send_replace(true);
        if let Some(task) = self.heartbeat {
            ended("heartbeat", task, times.signed_off).await;
        }
        if let Some(task) = self.session {
            ended("session keeper", task, times.signed_off).await;
        }
        if let Some(task) = self.change_log {
            ended("change log", task, times.signed_off).await;
        }
        self.loaded.end().await;
    }
}

/// Waits for a part, at most until then. It is not cut off: half a statement may be done.
async fn ended(what: &str, task: JoinHandle<()>, until: Instant) {
    match tokio::time::timeout_at(until, task).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the {what} did not end well"),
        Err(_) => tracing::warn!("the {what} still waits for the database; the stop goes on without it"),
    }
}
