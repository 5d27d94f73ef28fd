//! Reading what is due in partitions, and when to look again.

use std::time::Duration;

use async_trait::async_trait;
use outbox::event::OwnerId;
use outbox::store::{Position, ReadEvent, ReadRequest, ReadStore};
use outbox::{Route, StoreError};

use super::MemoryStore;
use crate::world::{Change, shown};

#[async_trait]
impl ReadStore for MemoryStore {
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.read_due(request, true).await
    }

    async fn read_without_payloads(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        let mut read = self.read_due(request, false).await?;
        read.iter_mut().for_each(|one| one.event.event = Err("it was read without its payload".to_owned()));
        Ok(read)
    }

    async fn next_to_read(&self, owner: &OwnerId, held: &[u64], busy: &[Route]) -> Result<Option<Duration>, StoreError> {
        self.run("next_to_read", |world| world.table.next_to_read(owner.as_str(), held, busy)).await
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        self.run("next_due", |world| world.table.next_due()).await
    }
}

impl MemoryStore {
    async fn read_due(&self, request: &ReadRequest, with_payloads: bool) -> Result<Vec<ReadEvent>, StoreError> {
        let front_takes = if request.after.is_none() { self.world().plan.front_takes } else { Duration::ZERO };
        let read = self.run("read", |world| {
            let taken = world.table.read(request);
            let rows: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
            if with_payloads && world.refuses(Change::Payload, &rows) {
                return None;
            }
            let read: Vec<ReadEvent> = taken
                .into_iter()
                .map(|taken| {
                    let (partition, was_claimed) = (world.table.partition(&taken.row), taken.row.locked_by.is_some());
                    let due_at = taken.row.due_at.expect("it is due");
                    let position = Position { due_at, sequence: taken.row.seq };
                    ReadEvent::new(world.claimed(self.life, taken), partition, position, was_claimed)
                })
                .collect();
            if !read.is_empty() {
                let fences: Vec<String> = read.iter().map(shown_as_read).collect();
                let line = format!("{} read {}", world.name(self.life), fences.join(" "));
                world.note(line);
            }
            Some(read)
        });
        let read = read.await;
        self.takes(front_takes).await;
        self.answer(Duration::ZERO, read).await?.ok_or_else(|| self.damaged())
    }
}

/// What was read, as the history shows it: with the event that it waits behind.
fn shown_as_read(read: &ReadEvent) -> String {
    let behind = read.event.behind.map(|behind| format!(" (behind {behind})")).unwrap_or_default();
    format!("{}{behind}", shown(read.event.fence))
}
