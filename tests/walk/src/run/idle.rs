//! Hosts with nothing to do ask the database for little.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use super::Stage;

/// What was under way when the last event ended is over then.
const QUIETENED: Duration = Duration::from_secs(120);
const COUNTED: Duration = Duration::from_secs(60);
/// Most calls of the store by a host in a second, beside its reads.
const MOST: f64 = 3.0;
/// By these the poller finds what other programs write: once in each interval, and what comes next.
const READS: [&str; 2] = ["read", "next_to_read"];

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
        let mut hosts: BTreeMap<usize, BTreeMap<&str, u32>> = BTreeMap::new();
        for ((life, name), count) in std::mem::take(&mut world.asked) {
            hosts.entry(life).or_default().insert(name, count);
        }
        let intervals = COUNTED.div_duration_f64(self.plan.poll_interval);
        for (life, asked) in hosts {
            let most = |name: &str| if READS.contains(&name) { intervals + 1.0 } else { f64::INFINITY };
            let too_often = asked.iter().any(|(name, count)| f64::from(*count) > most(name));
            let others: u32 = asked.iter().filter(|(name, _)| !READS.contains(name)).map(|(_, count)| count).sum();
            if too_often || f64::from(others) > MOST * COUNTED.as_secs_f64() {
                let line = format!("{} has nothing to do and asked in {COUNTED:?} for {asked:?}", world.name(life));
                world.violated(line);
            }
        }
    }
}
