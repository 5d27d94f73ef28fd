//! This node among the others: says that it is alive, and keeps its partitions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::order::Partitions;
use crate::queue::InFlight;
use crate::store::{Node, Store, StoreError};
use crate::wake::Wake;

/// So many times in a lease a node says that it is alive: one failure is no loss.
const HEARTBEATS: u32 = 3;
/// And so many times where nodes share partitions, so that a node that comes soon has its part of them.
const HEARTBEATS_WITH_PARTITIONS: u32 = 10;
/// How often a node looks whether its plugins changed, to tell of them before the next beat is due.
const LOOK: Duration = Duration::from_secs(1);

/// Tells of the plugins of this node, as one JSON list.
pub(crate) type Report = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Says that this node is alive, until it stops.
pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) node: Node,
    pub(crate) lease: Duration,
    /// `None` without plugins.
    pub(crate) report: Option<Report>,
    /// `None` where nothing is ordered.
    pub(crate) partitions: Option<Arc<Partitions>>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Heartbeat {
    /// Says so until it is stopped, then leaves: its partitions are free at once.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut failing = false;
        let mut known = false;
        let mut told = None;
        loop {
            // Written when it changed; a beat that failed is repeated whole.
            let plugins = self.report.as_ref().and_then(|report| report());
            let news = plugins.clone().filter(|_| plugins != told);
            match self.run_once(news).await {
                Ok(()) => {
                    told = plugins;
                    if std::mem::take(&mut failing) {
                        tracing::info!("this node is seen by the others again");
                    }
                    if !std::mem::replace(&mut known, true) {
                        self.warn_of_others().await;
                    }
                }
                Err(error) => {
                    self.metrics.db_errors.increment();
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!(error = %crate::chain(&error), "this node cannot say that it is alive; trying again");
                    }
                }
            }
            let heartbeats = if self.partitions.is_some() { HEARTBEATS_WITH_PARTITIONS } else { HEARTBEATS };
            let news = async {
                // Looked at often where there is something to tell: who asks for the plugins wants to see them as they are.
                loop {
                    tokio::time::sleep(LOOK).await;
                    if self.report.as_ref().is_some_and(|report| report() != told) {
                        return;
                    }
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = tokio::time::sleep(self.lease / heartbeats) => {}
                () = news => {}
            }
        }
        if let Err(error) = self.store.leave(&self.node.owner).await {
            tracing::warn!(error = %crate::chain(&error), "this node could not say that it leaves; the others notice when its lease ends");
        }
    }

    async fn run_once(&self, plugins: Option<String>) -> Result<(), StoreError> {
        let node = Node { plugins, ..self.node.clone() };
        let live = self.store.heartbeat(&node, self.lease).await?;
        match &self.partitions {
            Some(partitions) => {
                partitions.keep(&*self.store, &self.node.owner, self.lease, live, &self.in_flight, &self.wake).await
            }
            None => Ok(()),
        }
    }

    /// Modes that do not go together on one table are a mistake that nobody would see otherwise.
    async fn warn_of_others(&self) {
        let Ok(nodes) = self.store.nodes().await else { return };
        let ours = self.node.mode;
        for other in nodes.iter().filter(|other| other.alive && other.owner != self.node.owner.as_str() && other.mode != ours) {
            tracing::warn!(
                mode = ours,
                other = other.label,
                other_mode = other.mode,
                "another host works on the same table in another mode; order holds only when all of them run in the same one"
            );
        }
    }
}
