//! Steps of nodes: partitions, and lines that move on.

use outbox::event::OwnerId;
use outbox::store::{Blocker, KeyStore, Node, NodeStore, PartitionStore, SessionStore};
use support::Database;

use super::compare::agree;
use super::play::{Player, said};
use super::step::{Partitions, Step, span};
use super::table::Fault;

const MODES: [&str; 3] = ["multi_node", "multi_node", "ordered_by_aggregate"];

impl<D: Database> Player<'_, D> {
    pub(super) async fn line(&mut self, step: &Step) -> Result<(), Fault> {
        self.tick().await;
        match step {
            Step::Unblock { waits_for, limit, with_others } => {
                let partitions = Partitions::All.numbers();
                let mut blockers: Vec<u64> = self
                    .table
                    .blockers(&partitions, 0, u32::MAX)
                    .into_iter()
                    .map(|Blocker { sequence, .. }| sequence)
                    .collect();
                if *with_others {
                    blockers.extend(self.table.rows.keys());
                    blockers.push(self.table.newest() + 1);
                }
                blockers.sort_unstable();
                blockers.dedup();
                let mut unblocked = said("unblock", self.store.unblock(&blockers, *waits_for, *limit).await)?;
                unblocked.cleared.sort_unstable();
                unblocked.left.sort_unstable();
                agree("unblocked", self.table.unblock(&blockers, *waits_for, *limit), unblocked)
            }
            Step::KeepPartitions { owner, lease, most, of } => {
                let owner = self.owner(*owner);
                let kept = said("keep partitions", self.store.keep_partitions(&owner, span(*lease), *most, *of).await)?;
                agree("kept partitions", self.table.keep_partitions(owner.as_str(), span(*lease), *most, *of), kept)?;
                self.agree_partitions().await
            }
            Step::ReleasePartitions { owner, partitions } => {
                let owner = self.owner(*owner);
                said("release partitions", self.store.release_partitions(&owner, &partitions.numbers()).await)?;
                self.table.release_partitions(owner.as_str(), &partitions.numbers());
                self.agree_partitions().await
            }
            Step::Heartbeat { owner, lease, session } => {
                let node = Node { session: *session, ..self.node(*owner) };
                let alive = said("heartbeat", self.store.heartbeat(&node, span(*lease)).await)?;
                agree("live nodes", self.table.heartbeat(&node, span(*lease)), alive)
            }
            Step::Leave { owner } => {
                let owner: OwnerId = self.owner(*owner);
                said("leave", self.store.leave(&owner).await)?;
                self.table.leave(owner.as_str());
                self.agree_partitions().await
            }
            Step::Abandon { owner } => {
                let owner: OwnerId = self.owner(*owner);
                let free = said("look for sessions", self.store.free_sessions(&owner).await)?;
                agree("free sessions", self.table.free_sessions(owner.as_str()), free)?;
                let ended = said("abandon", self.store.abandon(owner.as_str()).await)?;
                agree("abandoned", self.table.abandon(owner.as_str()), ended)?;
                self.agree_partitions().await
            }
            other => Err(format!("{other:?} is no step of a node")),
        }
    }

    fn node(&self, number: usize) -> Node {
        let mode = MODES[number % MODES.len()];
        Node { reads: number.is_multiple_of(3), ..Node::new(self.owner(number), format!("node {number}"), mode, "1.0.0") }
    }
}
