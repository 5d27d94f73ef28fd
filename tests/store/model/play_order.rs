//! Steps of hosts: partitions, and blocked events that go on.

use std::time::{Duration, Instant};

use outbox::StoreError;
use outbox::event::OwnerId;
use outbox::store::{Blocker, KeyStore, Node, NodeStore, PartitionStore, SessionStore};
use support::{Database, PATIENCE};

use super::compare::agree;
use super::parts::{Partitions, SessionAct, span};
use super::play::{Player, said};
use super::step::Step;
use super::table::Fault;
use super::tally::Met;

const MODES: [&str; 3] = ["multi_node", "multi_node", "ordered_by_aggregate"];

impl<D: Database> Player<'_, D> {
    pub(super) async fn order(&mut self, step: &Step) -> Result<(), Fault> {
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
                let node = self.node(*owner);
                let owner = node.owner.clone();
                if let Some(lease) = lease {
                    let session = self.table.nodes.get(owner.as_str()).is_some_and(|row| row.session);
                    self.heartbeat(&Node { session, ..node }, span(*lease)).await?;
                }
                let kept = said("keep partitions", self.store.keep_partitions(&owner, *most, *of).await)?;
                self.watch.kept(self.table.now, owner.as_str(), &kept)?;
                self.meets(Met::Abandoned, kept.iter().filter(|partition| partition.abandoned).count().min(1));
                agree("kept partitions", self.table.keep_partitions(owner.as_str(), *most, *of), kept)?;
                self.agree_partitions().await
            }
            Step::ReleasePartitions { owner, partitions, of_before } => {
                let owner = self.owner(*owner);
                let partitions = self.table.with_epochs(&partitions.numbers(), *of_before);
                said("release partitions", self.store.release_partitions(&owner, &partitions).await)?;
                self.watch.released(owner.as_str(), &partitions);
                self.table.release_partitions(owner.as_str(), &partitions);
                self.agree_partitions().await
            }
            Step::Heartbeat { owner, lease, session } => {
                let node = Node { session: *session, ..self.node(*owner) };
                self.heartbeat(&node, span(*lease)).await
            }
            Step::Leave { owner } => {
                let owner: OwnerId = self.owner(*owner);
                said("leave", self.store.leave(&owner).await)?;
                self.watch.left(owner.as_str());
                self.table.leave(owner.as_str());
                self.agree_partitions().await
            }
            Step::Abandon { owner } => {
                let owner: OwnerId = self.owner(*owner);
                let free = said("look for sessions", self.store.free_sessions(&owner).await)?;
                agree("free sessions", self.table.free_sessions(owner.as_str()), free)?;
                let ended = said("abandon", self.store.abandon(owner.as_str()).await)?;
                let holds_its_lock = self.table.sessions.contains(owner.as_str());
                if ended {
                    self.watch.abandoned(self.table.now, owner.as_str(), holds_its_lock)?;
                }
                self.meets(if ended { Met::LeasesEnded } else { Met::NotAbandoned }, usize::from(ended || holds_its_lock));
                agree("abandoned", self.table.abandon(owner.as_str()), ended)?;
                self.agree_partitions().await
            }
            Step::Session { owner, act } => self.session(*owner % self.owners.len(), *act).await,
            other => Err(format!("{other:?} is no step of a node")),
        }
    }

    async fn heartbeat(&mut self, node: &Node, lease: Duration) -> Result<(), Fault> {
        let hosts = said("heartbeat", self.store.heartbeat(node, lease).await)?;
        self.watch.alive(self.table.now, node.owner.as_str(), lease);
        agree("live nodes", self.table.heartbeat(node, lease), hosts)
    }

    async fn session(&mut self, number: usize, act: SessionAct) -> Result<(), Fault> {
        let owner = self.owner(number);
        match act {
            SessionAct::Hold => match self.store.hold_session(&owner).await {
                Err(StoreError::Locked { .. }) if self.sessions[number].is_some() => {}
                Ok(Some(session)) if self.sessions[number].is_none() => {
                    self.sessions[number] = Some(session);
                    self.table.sessions.insert(owner.as_str().to_owned());
                }
                other => return Err(format!("hold a session: {:?}", other.map(|session| session.map(|_| "a session")))),
            },
            SessionAct::End => {
                if let Some(session) = self.sessions[number].take() {
                    session.end().await;
                }
                self.table.sessions.remove(owner.as_str());
            }
            SessionAct::Die => {
                if let Some(session) = self.sessions[number].take() {
                    drop(session);
                    self.wait_until_its_lock_is_free(&owner).await?;
                }
                self.table.sessions.remove(owner.as_str());
            }
        }
        for session in self.sessions.iter_mut().flatten() {
            said("prove a session", session.prove().await)?;
        }
        Ok(())
    }

    /// A server may take a moment to notice that a connection is gone.
    async fn wait_until_its_lock_is_free(&self, owner: &OwnerId) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            match self.store.hold_session(owner).await {
                Ok(Some(session)) => {
                    session.end().await;
                    return Ok(());
                }
                Err(StoreError::Locked { .. }) if started.elapsed() < PATIENCE => {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                other => return Err(format!("hold the session of one that died: {:?}", other.map(|_| "nothing to hold"))),
            }
        }
    }

    fn node(&self, number: usize) -> Node {
        let mode = MODES[number % MODES.len()];
        let room = u32::from(number.is_multiple_of(2));
        Node { room, ..Node::new(self.owner(number), format!("node {number}"), mode, "1.0.0") }
    }
}
