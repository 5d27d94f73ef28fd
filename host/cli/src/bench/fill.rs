//! Filling the table.

use std::time::Instant;

use outbox::store::{Settled, Settlement};
use outbox::{Envelope, Outbox, TransactionalStore};

use super::alone::{Claims, Reader};
use super::stage::{Bench, Error};

/// How many aggregates the ordered events are spread over.
const AGGREGATES: u32 = 1_000;
/// Events in each transaction.
const IN_A_TRANSACTION: u32 = 1_000;

impl<S: TransactionalStore + Clone> Bench<S> {
    /// An event of this type, without an aggregate's id.
    pub(super) fn envelope(&self, event_type: &str) -> Result<Envelope, Error> {
        Ok(Envelope::new(event_type).aggregate_type("Bench").json_text(self.payload.clone())?)
    }

    /// Fills the table with the events of a stage. Returns the rate.
    pub(super) async fn fill(&self) -> Result<f64, Error> {
        self.clear().await?;
        self.write(self.events, |_| self.envelope("Noop")).await
    }

    /// As [`fill`](Self::fill), with the events of 1,000 aggregates in turn.
    pub(super) async fn fill_aggregates(&self) -> Result<f64, Error> {
        self.clear().await?;
        let envelope = |number: u32| {
            let aggregate = (number % AGGREGATES).to_string();
            Ok(Envelope::new("Noop").aggregate("Bench", aggregate).json_text(self.payload.clone())?)
        };
        self.write(self.events, envelope).await
    }

    /// Fills the table with this many events of a slow route.
    pub(super) async fn fill_slow(&self, events: u32) -> Result<(), Error> {
        self.clear().await?;
        self.write(events, |_| self.envelope("Slow")).await?;
        Ok(())
    }

    /// Adds the events of a stage so that all of them become due at this time.
    pub(super) async fn fill_due(&self, due_at: Instant) -> Result<(), Error> {
        let envelope = |_| {
            let left = due_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the events could not be written before they became due; choose fewer --events".into());
            }
            Ok(self.envelope("Noop")?.with(|envelope| envelope.deliver_after(left))?)
        };
        self.write(self.events, envelope).await?;
        Ok(())
    }

    /// Leaves this many finished and this many parked events in the table for all later stages. The parked events have a route
    /// of their own without a listener, since a listener would get them.
    pub(super) async fn prefill(&mut self, finished: u32, parked: u32) -> Result<(), Error> {
        self.clear().await?;
        self.is_prefilled = true;
        if finished > 0 {
            self.write(finished, |_| self.envelope("Noop")).await?;
            self.claim_and_settle(finished, &Settlement::Done).await?;
        }
        if parked > 0 {
            self.write(parked, |_| self.envelope("Parked")).await?;
            self.claim_and_settle(parked, &Settlement::Parked { reason: "for the benchmark".to_owned() }).await?;
        }
        Ok(())
    }

    /// Leaves a dead event of one aggregate in the table for all later stages, and this many events that wait behind it.
    pub(super) async fn block(&mut self, events: u32) -> Result<(), Error> {
        self.clear().await?;
        self.is_prefilled = true;
        let envelope = |_| Ok(self.envelope("Blocked")?.with(|envelope| envelope.aggregate_id("blocked"))?);
        self.write(1, envelope).await?;
        let mut reader = Reader::new(&self.store, Claims::None).await?;
        let dead = reader.next(&self.store).await?.pop().ok_or("the event that was just written is missing")?.fence;
        let error = "for the benchmark".to_owned();
        self.store.settle(&[Settled::new(dead, Settlement::Dead { error, counted: true, blocks: true })]).await?;
        reader.end(&self.store).await?;
        self.write(events, envelope).await?;
        self.claim_and_settle(events, &Settlement::Behind { sequence: dead.sequence }).await?;
        Ok(())
    }

    /// Empties the table, unless it was filled for all stages: each stage begins with the same table, and does not pay for the rows
    /// and dead row versions of earlier stages.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        if self.is_prefilled { Ok(()) } else { self.recreate().await }
    }

    async fn write(&self, events: u32, envelope: impl Fn(u32) -> Result<Envelope, Error>) -> Result<f64, Error> {
        let outbox = Outbox::writer_only(self.store.clone()).start().await?;
        let started = Instant::now();
        let mut left = events;
        while left > 0 {
            let count = left.min(IN_A_TRANSACTION);
            let envelopes = (0..count).map(&envelope).collect::<Result<Vec<_>, _>>()?;
            let mut transaction = outbox.begin().await?;
            transaction.write_all(envelopes).await?;
            transaction.commit().await?;
            left -= count;
        }
        let rate = f64::from(events) / started.elapsed().as_secs_f64();
        outbox.shutdown().await;
        Ok(rate)
    }
}
