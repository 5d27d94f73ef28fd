//! The database is well again: every event ends, and everything works as before.

use std::sync::Arc;
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::{Audit, NewRow, Ownership, Record};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::writing::envelope;
use super::{Stage, locked};
use crate::listener::ROUTES;
use crate::table::is_unfinished;

/// How long after all faults every event must have ended.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How long a new event may take then.
const PROBE_PATIENCE: Duration = Duration::from_secs(300);

impl Stage {
    /// The database is well: everybody is started again, and every event ends.
    pub(super) async fn recover(self: &Arc<Self>) {
        self.join_tasks().await;
        self.end_deploy();
        self.join_tasks().await;
        let writers = std::mem::take(&mut *locked(&self.writers));
        for (_, task) in writers {
            self.join(task).await;
        }
        self.until_all_have_ended(PATIENCE).await;
        if self.world().violation.is_some() {
            return;
        }
        // Everything works as if nothing had been, the listener whose breaker was open too.
        {
            let mut world = self.world();
            let now = world.tick();
            let nobodys = Ownership { owner: OwnerId::known("nobody"), lease: Duration::ZERO };
            let mut rows = Vec::new();
            for (number, _) in ROUTES.iter().enumerate() {
                let envelope = envelope(&format!("probe-{number}"), number, Some("0"), now).bytes("text/plain", "probe");
                let envelope = envelope.expect("a good envelope");
                world.insert(&mut rows, &[NewRow { envelope: &envelope, claimed: false }], &nobodys);
            }
            world.commit(rows);
        }
        self.until_all_have_ended(PROBE_PATIENCE).await;
    }

    async fn join_tasks(&self) {
        loop {
            let task = locked(&self.tasks).pop();
            let Some(task) = task else { return };
            self.join(task).await;
        }
    }

    async fn join(&self, task: JoinHandle<()>) {
        if let Err(error) = task.await
            && error.is_panic()
        {
            self.world().violated(format!("a task of the test panicked: {error}"));
        }
    }

    async fn until_all_have_ended(&self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            sleep(Duration::from_secs(1)).await;
            let mut world = self.world();
            if world.violation.is_some() {
                return;
            }
            let open: Vec<&Record> = world.table.rows.values().filter(|row| is_unfinished(row)).collect();
            if open.is_empty() {
                return;
            }
            if Instant::now() >= until {
                let open: Vec<String> = open.iter().map(|row| format!("  {}", left(row))).collect();
                world.violated(format!("{} events have not ended:\n{}", open.len(), open.join("\n")));
                return;
            }
            // An operator lets what waits behind a dead event go on.
            let blocking = world.table.rows.values().filter(|row| row.blocks).map(|row| row.event_id);
            let audit = Audit { actor: "operator".to_owned(), reason: None };
            if let Some(id) = blocking.min() {
                world.tick();
                world.table.skip(id, &audit);
                world.note(format!("somebody skips {id}"));
            }
        }
    }
}

/// What keeps an event from its end.
fn left(row: &Record) -> String {
    format!(
        "{} {} of {}/{}: {:?}, due at {:?}, parked {:?}, behind {:?}, claimed by {:?} until {:?}",
        row.seq,
        row.event_id,
        row.aggregate_type,
        row.event_type,
        row.status,
        row.due_at,
        row.parked,
        row.behind,
        row.locked_by,
        row.lease_end
    )
}
