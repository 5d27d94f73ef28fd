//! Old events are deleted in time.

use std::time::Duration;

use outbox::Status;
use tokio::time::{Instant, sleep};

use super::Stage;
use crate::world::{Change, World};

/// How much longer than its retention and two intervals an event may be there.
const LONGER: Duration = Duration::from_secs(10);

impl Stage {
    /// Waits until the hosts have deleted all events that they may delete.
    pub(super) async fn purge_ends(&self) {
        let (patience, is_over) = {
            let world = self.world();
            let longest = [Status::Done, Status::Dead].into_iter().filter_map(|status| world.kept_for(status)).max();
            (longest.unwrap_or_default() + 2 * world.clock_error(), world.violation.is_some())
        };
        if is_over || !self.plan.purge.enabled {
            return;
        }
        let until = Instant::now() + patience;
        loop {
            sleep(Duration::from_secs(1)).await;
            let mut world = self.world();
            let kept = [Status::Done, Status::Dead].into_iter().filter(|status| world.kept_for(*status).is_some());
            let left: Vec<u64> = kept.flat_map(|status| world.purgeable(status)).map(|row| row.seq).collect();
            if left.is_empty() {
                return;
            }
            if Instant::now() >= until {
                world.violated(format!("nothing fails, and {left:?} were not purged within {patience:?}"));
                return;
            }
        }
    }
}

impl World {
    /// Finds an event that should have been deleted by two purges of the first host, though nothing is wrong but the deletion of others.
    pub(super) fn check_purge(&mut self) {
        if !self.plan.purge.enabled || !self.plan.has_only_mild_faults() {
            return;
        }
        let refused = self.refused_rows(Change::Purge);
        let overdue = [Status::Done, Status::Dead].into_iter().find_map(|status| {
            let before = self.table.now.minus(self.kept_for(status)?);
            self.purgeable(status).find(|row| row.at <= before && !refused.contains(&row.seq))
        });
        if let Some(row) = overdue {
            let fault =
                format!("{} ended at {} and was not purged, though only {refused:?} cannot be deleted", row.seq, row.at);
            self.violated(fault);
        }
    }

    /// How long finished events of this status may be there; `None` for ever. Clocks may drift by two per cent.
    fn kept_for(&self, status: Status) -> Option<Duration> {
        let purge = &self.plan.purge;
        Some((purge.kept(status)? + 2 * purge.interval + LONGER).mul_f64(1.1))
    }
}
