//! Hosts with nothing to do ask the database for little.

use std::time::Duration;

use tokio::time::sleep;

use super::Stage;
use crate::plan::Plan;

/// What was under way when the last event ended is over then.
const QUIETENED: Duration = Duration::from_secs(120);
const COUNTED: Duration = Duration::from_secs(60);

impl Stage {
    /// Counts what each host asks for.
    pub(super) async fn idle(&self) {
        if self.world().violation.is_some() {
            return;
        }
        sleep(QUIETENED).await;
        self.world().asked.clear();
        sleep(COUNTED).await;
        let mut world = self.world();
        for ((life, name), count) in std::mem::take(&mut world.asked) {
            let every = every(&self.plan, name);
            // Questions of other hosts wake this one too. Each measurement of a clock that drifts away changes the times that a host reports, and so
            // brings its next heartbeat forward.
            let measured = if self.plan.time_of_day.drifts_from(&self.plan.database_clock) { 3.0 } else { 0.0 };
            let most = every.map_or(0.0, |every| COUNTED.div_duration_f64(every) + 2.0 * self.plan.hosts as f64 + measured);
            if f64::from(count) > most {
                let line = format!("{} has nothing to do, and asked {count} times in {COUNTED:?} for {name}", world.name(life));
                world.violated(line);
            }
        }
    }
}

/// How often an idle host asks for this; `None` for what it has no reason to ask for.
fn every(plan: &Plan, name: &str) -> Option<Duration> {
    Some(match name {
        // By these it finds what other programs write, and when the next event is due.
        "read" | "next_to_read" => plan.poll_interval,
        "prove_with_overview" | "unpark" | "parked_route" => Duration::from_secs(1),
        // A session tells of changes.
        "routes" => Duration::from_secs(if plan.sessions { 10 } else { 1 }),
        // A host that is not alone, and should be, looks around it with each.
        "heartbeat" | "restore_partitions" | "keep_partitions" | "nodes" => plan.lease / 10,
        // With the look around, and four times in a purge.
        "now" if plan.purge.enabled => (plan.lease / 10).min(plan.purge.interval / 4) / 2,
        "now" => plan.lease / 10,
        "oldest_purgeable" | "count_purgeable" if plan.purge.enabled => plan.purge.interval / 2,
        // A host without the right to delete halves its batch until a single row is refused.
        "purge" | "next_to_purge" if plan.purge.enabled => plan.purge.interval / 12,
        // A host that stands aside, or has a stall.
        "peers" => plan.lease / 10,
        // A host that stood aside comes back.
        "release_partitions" => Duration::from_secs(30),
        "blockers" => plan.lease,
        "check_schema" | "check_index" | "notify" => Duration::from_secs(30),
        _ => return None,
    })
}
