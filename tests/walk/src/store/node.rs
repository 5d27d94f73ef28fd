//! The hosts that live.

use std::time::Duration;

use async_trait::async_trait;
use outbox::StoreError;
use outbox::event::OwnerId;
use outbox::store::{Node, NodeRecord, NodeStore, Peer};

use super::MemoryStore;

#[async_trait]
impl NodeStore for MemoryStore {
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        self.run("heartbeat", |world| world.table.heartbeat(node, lease)).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        self.run("leave", |world| {
            let line = format!("{} leaves", world.name(self.life));
            world.note(line);
            world.table.leave(owner.as_str());
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        self.run("nodes", |world| {
            let now = world.table.now;
            let nodes = world.table.nodes.iter().map(|(owner, row)| {
                let node = Node { session: row.session, ..Node::new(OwnerId::known(owner), owner, row.mode, "1.0.0") };
                let mut record = NodeRecord::new(&node, row.started_at);
                (record.alive_until, record.alive) = (row.alive_until, row.alive_until > now);
                (record.room, record.listeners) = (row.room, row.listeners.clone());
                record
            });
            nodes.collect()
        })
        .await
    }

    async fn peers(&self, node: &Node) -> Result<Vec<Peer>, StoreError> {
        self.run("peers", |world| {
            let (now, own) = (world.table.now, node.owner.as_str());
            let nodes = world.table.nodes.iter();
            let others = nodes.filter(|(owner, row)| *owner != own && row.alive_until > now && row.mode == node.mode);
            others.map(|(owner, row)| Peer::new(owner.clone(), row.room, row.listeners.clone())).collect()
        })
        .await
    }
}
