//! The roles that a host hardly asks of its store while it delivers: those of people and their tools.

use async_trait::async_trait;
use outbox::event::{StateUsage, StateValue};
use outbox::store::{
    Audit, AuditFilter, AuditRecord, AuditStore, DeadFilter, DeadStore, DoctorStore, Expectations, Filter, Finding,
    InspectStore, Plan, PlanStore, PluginUsage, Record, RowId, StateRecord, StateStore, Stats, WaitReason,
};
use outbox::time::Timestamp;
use outbox::{EventId, StoreError};

use super::MemoryStore;

#[async_trait]
impl InspectStore for MemoryStore {
    async fn stats(&self) -> Result<Stats, StoreError> {
        unreachable!("to count a large table takes longer than the server allows")
    }

    async fn sample(&self, _: u32) -> Result<Stats, StoreError> {
        unreachable!("the sampler is off")
    }

    async fn wait_reasons(&self, _: u32) -> Result<Vec<WaitReason>, StoreError> {
        unreachable!("only people ask for this")
    }

    /// For the log, which names the event of a row that cannot be claimed.
    async fn list(&self, filter: &Filter, _: u32) -> Result<Vec<Record>, StoreError> {
        let (after, before) = (filter.after.unwrap_or(0), filter.before.unwrap_or(u64::MAX));
        let is_asked = |row: &&Record| row.seq > after && row.seq < before;
        self.run("list", |world| world.table.rows.values().filter(is_asked).cloned().collect()).await
    }

    /// For the log, which names the route of an event whose outcome is refused.
    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        self.run("get", |world| world.table.rows.values().find(|row| row.event_id == id).cloned()).await
    }
}

#[async_trait]
impl DeadStore for MemoryStore {
    async fn count_dead(&self, _: &DeadFilter) -> Result<u64, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn replay(&self, _: EventId, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn dead_rows(&self, _: &DeadFilter, _: u64, _: u32) -> Result<Vec<RowId>, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn replay_rows(&self, _: &[u64], _: &DeadFilter, _: &Audit) -> Result<u64, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn waiting_rows(&self, _: Option<u32>, _: u64, _: u32) -> Result<Vec<RowId>, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn retry_rows_now(&self, _: &[u64], _: Option<u32>, _: &Audit) -> Result<u64, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn count_waiting(&self, _: Option<u32>) -> Result<u64, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn discard(&self, _: EventId, _: Option<Timestamp>, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn skip(&self, _: EventId, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people ask for this")
    }
}

#[async_trait]
impl AuditStore for MemoryStore {
    async fn note(&self, _: &Audit, _: &str, _: &serde_json::Value, _: u64) -> Result<(), StoreError> {
        self.run("note", |_| ()).await
    }

    async fn list_audit(&self, _: &AuditFilter, _: u32) -> Result<Vec<AuditRecord>, StoreError> {
        unreachable!("only people ask for this")
    }
}

#[async_trait]
impl DoctorStore for MemoryStore {
    async fn diagnose(&self, _: &Expectations) -> Result<Vec<Finding>, StoreError> {
        unreachable!("only people ask for this")
    }
}

#[async_trait]
impl PlanStore for MemoryStore {
    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        unreachable!("only people ask for this")
    }
}

#[async_trait]
impl StateStore for MemoryStore {
    async fn state(&self, _: &str, _: &str) -> Result<Option<StateValue>, StoreError> {
        unreachable!("only plugins ask for this")
    }

    async fn state_usage(&self, _: &str) -> Result<StateUsage, StoreError> {
        unreachable!("only plugins ask for this")
    }

    async fn state_usages(&self, _: Option<&str>, _: u32) -> Result<Vec<PluginUsage>, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn list_state(&self, _: &str, _: &str, _: Option<&str>, _: u32) -> Result<Vec<StateRecord>, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn get_state(&self, _: &str, _: &str) -> Result<Option<StateRecord>, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn delete_state(&self, _: &str, _: &str, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people ask for this")
    }

    async fn delete_all_state(&self, _: &str, _: u32, _: &Audit) -> Result<u64, StoreError> {
        unreachable!("only people ask for this")
    }
}
