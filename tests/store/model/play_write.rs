//! Steps that write.
use outbox::event::Fence;
use outbox::store::{InspectStore, NewRow, Ownership, PARTITIONS, WriteStore};
use outbox::{Envelope, EventId, TransactionalStore};
use support::Database;

use super::compare::agree;
use super::late::{Late, Work, end};
use super::parts::{End, Hours, NewEvent, Writer, span};
use super::play::{AGGREGATE_IDS, AGGREGATE_TYPES, EVENT_TYPES, MOST_EVENTS, Player, envelope, round, said};
use super::step::Step;
use super::table::{Fault, Uncommitted};

/// The number of no row.
const NEVER: u64 = 9_223_372_036_854_775_807;

impl<D: Database> Player<'_, D> {
    pub(super) async fn write(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::Write { events, owner, lease, by } => {
                let events = self.named(events, None);
                match by {
                    Writer::Store => self.write_whole(events, *owner, *lease).await,
                    Writer::Caller(how) => {
                        let insert = Work::Insert { events, owner: *owner, lease: *lease };
                        self.run(vec![insert], *how).await
                    }
                }
            }
            Step::Insert { transaction, events, owner, lease } => {
                let events = self.named(events, Some(*transaction));
                self.late[*transaction].ids.extend(events.iter().map(|(id, _)| *id));
                self.work_late(*transaction, Work::Insert { events, owner: *owner, lease: *lease }).await
            }
            Step::DeleteInserted { transaction, event } => {
                self.late[*transaction].took_back = true;
                self.work_late(*transaction, Work::DeleteInserted { event: *event }).await
            }
            Step::End { transaction, end } => self.end_late(*transaction, *end).await,
            Step::PlainInsert { event_type, key } => self.plain_insert(*event_type, *key).await,
            other => Err(format!("{other:?} writes nothing")),
        }
    }

    /// Gives events their ids. A late transaction repeats only its own: in one that stays open, a database may lock the row
    /// that is there already.
    fn named(&mut self, events: &[NewEvent], late: Option<usize>) -> Vec<(EventId, NewEvent)> {
        let mut known = match late {
            Some(late) if self.late[late].took_back => Vec::new(),
            Some(late) => self.late[late].ids.clone(),
            None => self.repeatable(),
        };
        self.named_among(events, &mut known)
    }

    /// Gives events their ids, of which some are among these.
    pub(super) fn named_among(&mut self, events: &[NewEvent], known: &mut Vec<EventId>) -> Vec<(EventId, NewEvent)> {
        let mut named = Vec::with_capacity(events.len());
        for event in events {
            let again = event.again.and_then(|number| round(known, number).copied());
            let id = match again {
                Some(id) => id,
                None if self.ids < MOST_EVENTS => {
                    self.ids += 1;
                    self.event_id(self.ids - 1)
                }
                None => continue,
            };
            known.push(id);
            named.push((id, event.clone()));
        }
        named
    }

    /// Ids that may be written again. MySQL remembers deleted ones for a while, and looks beside them for what it would lock:
    /// then it waits for open transactions that wrote other ids.
    pub(super) fn repeatable(&mut self) -> Vec<EventId> {
        let used: Vec<EventId> = (0..self.ids).map(|number| self.event_id(number)).collect();
        let late: Vec<EventId> = self.late.iter().flat_map(|late| late.ids.clone()).collect();
        let (table, ids) = (&self.table, used.iter().filter(|id| !late.contains(id)).copied());
        let (there, gone): (Vec<EventId>, Vec<EventId>) = ids.partition(|id| table.has(*id));
        self.once_gone.extend(gone.iter().copied());
        if self.late.iter().any(Late::is_open) {
            there.into_iter().filter(|id| !self.once_gone.contains(id)).collect()
        } else {
            there.into_iter().chain(gone).collect()
        }
    }

    async fn write_whole(&mut self, events: Vec<(EventId, NewEvent)>, owner: usize, lease: Hours) -> Result<(), Fault> {
        let (theirs, ours) = self.envelopes(&events).await;
        self.tick().await;
        let ownership = Ownership { owner: self.owner(owner), lease: span(lease) };
        let numbers = said("write", self.store.write(&rows(&theirs), &ownership).await)?;
        let mut transaction = Uncommitted::new();
        self.table.insert(&mut transaction, &rows(&ours), &ownership, &numbers)?;
        self.commit(transaction).await
    }

    /// The same events by the database's clock and by the table's.
    async fn envelopes(&mut self, events: &[(EventId, NewEvent)]) -> (Vec<(Envelope, bool)>, Vec<(Envelope, bool)>) {
        let (theirs, ours) = self.clocks().await;
        let by = |now| events.iter().map(|(id, event)| (envelope(*id, event, now), event.claimed)).collect();
        (by(theirs), by(ours))
    }

    /// Does all of a transaction's work at once.
    async fn run(&mut self, works: Vec<Work>, how: End) -> Result<(), Fault> {
        let mut transaction = said("begin", self.store.begin().await)?;
        let mut uncommitted = Uncommitted::new();
        for work in works {
            self.work(&mut transaction, &mut uncommitted, work).await?;
        }
        if said("end", end::<D::Store>(transaction, how).await)? { self.commit(uncommitted).await } else { Ok(()) }
    }

    async fn work(
        &mut self,
        transaction: &mut <D::Store as TransactionalStore>::Transaction,
        uncommitted: &mut Uncommitted,
        work: Work,
    ) -> Result<(), Fault> {
        match work {
            Work::Insert { events, owner, lease } => {
                let (theirs, ours) = self.envelopes(&events).await;
                self.tick().await;
                let ownership = Ownership { owner: self.owner(owner), lease: span(lease) };
                let answer = self.store.insert(transaction.as_mut(), &rows(&theirs), &ownership).await;
                let answer = said("insert", answer)?;
                self.table.insert(uncommitted, &rows(&ours), &ownership, &answer)?;
                let named = answer.iter().zip(&events);
                let mut inserted: Vec<(u64, EventId)> = named.filter_map(|(seq, (id, _))| Some(((*seq)?, *id))).collect();
                inserted.sort();
                // With one more, which was never written.
                let asked: Vec<u64> = inserted.iter().map(|(seq, _)| *seq).chain([NEVER]).collect();
                let mut found = said("find", self.store.find(transaction.as_mut(), &asked).await)?;
                found.sort();
                agree("rows that their transaction sees", inserted, found)
            }
            Work::DeleteInserted { event } => {
                let Some(id) = round(uncommitted, event).map(|row| row.event_id) else { return Ok(()) };
                uncommitted.retain(|row| row.event_id != id);
                said("delete inserted", self.store.delete_inserted(transaction.as_mut(), &[id]).await)
            }
        }
    }

    async fn work_late(&mut self, number: usize, work: Work) -> Result<(), Fault> {
        if self.one_writer {
            self.late[number].later.push(work);
            return Ok(());
        }
        let (mut transaction, mut uncommitted) = match self.late[number].open.take() {
            Some(open) => open,
            None => (said("begin", self.store.begin().await)?, Uncommitted::new()),
        };
        let worked = self.work(&mut transaction, &mut uncommitted, work).await;
        self.late[number].open = Some((transaction, uncommitted));
        worked
    }

    async fn end_late(&mut self, number: usize, how: End) -> Result<(), Fault> {
        let Late { open, later, .. } = std::mem::replace(&mut self.late[number], Late::new());
        if let Some((transaction, uncommitted)) = open {
            if said("end", end::<D::Store>(transaction, how).await)? {
                self.commit(uncommitted).await?;
            }
        } else if !later.is_empty() {
            self.run(later, how).await?;
        }
        Ok(())
    }

    /// Takes over what was committed, and asks which partition events without an aggregate are in.
    pub(super) async fn commit(&mut self, transaction: Uncommitted) -> Result<(), Fault> {
        for row in transaction.iter().filter(|row| row.aggregate_id.is_none()) {
            let partition = self.db.number(&format!("SELECT partition_id FROM outbox_event WHERE seq = {}", row.seq)).await;
            self.table.learn(row.event_id, partition_number(partition)?);
        }
        for row in &transaction {
            let owner = self.owners.iter().find(|owner| row.locked_by.as_deref() == Some(owner.as_str())).cloned();
            if let Some(owner) = owner {
                self.given(&owner, Fence { sequence: row.seq, claim: row.claim_seq });
            }
        }
        self.table.commit(transaction);
        Ok(())
    }

    /// As a program without this library writes: few columns, the rest by default.
    async fn plain_insert(&mut self, event_type: usize, key: Option<(usize, usize)>) -> Result<(), Fault> {
        if self.ids == MOST_EVENTS {
            return Ok(());
        }
        let id = self.event_id(self.ids);
        self.ids += 1;
        let new = NewEvent { event_type, key, payload_bytes: id.as_str().len(), ..NewEvent::plain() };
        self.tick().await;
        let (kind, key) = match key {
            Some((kind, key)) => (AGGREGATE_TYPES[kind], format!("'{}'", AGGREGATE_IDS[key])),
            None => ("__GLOBAL__", "NULL".to_owned()),
        };
        let sql = format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, content_type, payload) \
             VALUES ('{id}', '{}', '{kind}', {key}, 'text/plain', '{id}')",
            EVENT_TYPES[event_type]
        );
        self.db.execute(&sql).await;
        let found = said("get", self.store.get(id).await)?.ok_or_else(|| format!("{id} was inserted and is not there"))?;
        // Where the test moves the clock, a plain INSERT goes by the system's, which is behind.
        let now = if self.one_writer { found.occurred_at } else { self.table.now };
        let ours = [(envelope(id, &new, now), false)];
        let ownership = Ownership { owner: self.owner(0), lease: span(1) };
        let mut transaction = Uncommitted::new();
        self.table.insert(&mut transaction, &rows(&ours), &ownership, &[Some(found.seq)])?;
        if self.one_writer {
            transaction[0].created_at = found.created_at;
        }
        self.commit(transaction).await
    }
}

/// A partition, as a number of a column.
pub(super) fn partition_number(number: i64) -> Result<u16, Fault> {
    u16::try_from(number).ok().filter(|partition| *partition < PARTITIONS).ok_or_else(|| format!("{number} is no partition"))
}

fn rows(events: &[(Envelope, bool)]) -> Vec<NewRow<'_>> {
    events.iter().map(|(envelope, claimed)| NewRow { envelope, claimed: *claimed }).collect()
}
