//! A host of an earlier version.

use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::{Node, Settled, Settlement};
use tokio::time::sleep;

use super::Stage;
use crate::again;

impl Stage {
    /// A host of an earlier version is there for this long: it claims whatever is due, and delivers some of it.
    pub(super) async fn claim_as_of_old(&self, span: Duration) {
        let owner = OwnerId::known("old");
        let until = again::elapsed() + span;
        while again::elapsed() < until {
            {
                let mut world = self.world();
                world.tick();
                world.table.heartbeat(&Node::new(owner.clone(), "old", self.plan.mode.as_str(), "0.0.9"), span);
                let lease = self.plan.lease;
                let fences = world.table.due(3);
                let taken = world.past_locked(|world| world.table.claim(&owner, lease, &fences));
                let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
                world.lost(|_, row| seqs.contains(&row.seq));
                world.taken_by_old.extend(&seqs);
                world.note(format!("the host of an earlier version claims {seqs:?}"));
                for taken in taken {
                    if world.chance.per_mille(500) {
                        world.table.settle(&[Settled::new(taken.fence, Settlement::Done)]);
                    }
                }
            }
            let rest = self.world().chance.millis(500..10_000);
            sleep(rest).await;
        }
        let mut world = self.world();
        world.tick();
        world.table.leave("old");
        world.note("the host of an earlier version is gone");
    }
}
