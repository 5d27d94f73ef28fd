//! Writers: hosts, and other programs.

use std::sync::Arc;
use std::time::Duration;

use outbox::event::{EnvelopeBuilder, OwnerId};
use outbox::store::{NewRow, Ownership};
use outbox::time::Timestamp;
use outbox::{Envelope, EventId, Outbox};
use tokio::time::sleep;

use super::{Stage, locked};
use crate::chance::Chance;
use crate::listener::ROUTES;
use crate::store::MemoryStore;

impl Stage {
    /// Writes events, by a host or by another program; late, or not at all.
    pub(super) fn write(self: Arc<Self>, count: usize) {
        let mut world = self.world();
        let chance = Chance::of(world.chance.next(), 9);
        drop(world);
        let mut writing = Writing { stage: self.clone(), chance };
        let place = writing.chance.index(self.plan.hosts);
        let host = locked(&self.places[place]).clone().filter(|_| !writing.chance.per_mille(300));
        let life = host.as_ref().map_or(usize::MAX, |(life, _)| *life);
        let task = tokio::spawn(async move { writing.write(host.map(|(_, outbox)| outbox), count).await });
        locked(&self.writers).push((life, task));
    }
}

/// One transaction.
struct Writing {
    stage: Arc<Stage>,
    chance: Chance,
}

impl Writing {
    async fn write(&mut self, host: Option<Outbox<MemoryStore>>, count: usize) {
        let key = (!self.chance.per_mille(200)).then(|| self.chance.index(self.stage.plan.aggregates));
        let aggregate = key.map(|key| self.stage.aggregates[key].clone());
        let _alone = match &aggregate {
            Some(aggregate) => Some(aggregate.lock().await),
            None => None,
        };
        let key = key.map(|key| key.to_string());
        let envelopes: Vec<Envelope> = (0..count).map(|_| self.envelope(key.as_deref())).collect();
        let longest = self.stage.plan.lease.as_millis() as u64 * 3 / 2;
        let late = if self.chance.per_mille(200) { self.chance.millis(0..longest) } else { self.chance.millis(0..50) };
        let commits = !self.chance.per_mille(150);
        match host {
            // What an error means for its events only the table knows.
            Some(outbox) if self.chance.per_mille(300) => drop(outbox.writer().emit(envelopes).await),
            Some(outbox) => {
                let Ok(mut transaction) = outbox.begin().await else { return };
                let written = transaction.write_all(envelopes).await;
                sleep(late).await;
                if written.is_err() || !commits {
                    if self.chance.per_mille(500) {
                        drop(transaction.rollback().await);
                    }
                    return;
                }
                drop(transaction.commit().await);
            }
            None => {
                let nobodys = Ownership { owner: OwnerId::known("nobody"), lease: Duration::ZERO };
                let mut rows = Vec::new();
                for envelope in &envelopes {
                    let new = NewRow { envelope, claimed: false };
                    self.stage.world().insert(&mut rows, &[new], &nobodys);
                }
                sleep(late).await;
                if commits {
                    self.stage.world().commit(rows);
                }
            }
        }
    }

    fn envelope(&mut self, key: Option<&str>) -> Envelope {
        let number = {
            let mut next = locked(&self.stage.next_id);
            *next += 1;
            *next
        };
        let now = self.stage.world().table.now;
        let mut builder = envelope(&format!("e{number:03}"), self.chance.index(ROUTES.len()), key, now);
        let plan = &self.stage.plan;
        if self.chance.per_mille(plan.put_off) {
            let longest = u64::try_from(plan.put_off_for.as_millis()).expect("half a minute");
            builder = builder.available_at(now.plus(self.chance.millis(0..longest)));
        }
        if self.chance.per_mille(50) {
            builder = builder.expires_at(now.plus(self.chance.millis(31_000..120_000)));
        }
        builder.bytes("text/plain", format!("payload of {number}")).expect("a good envelope")
    }
}

pub(super) fn envelope(id: &str, route: usize, key: Option<&str>, now: Timestamp) -> EnvelopeBuilder {
    let (aggregate_type, event_type) = ROUTES[route];
    let id: EventId = id.parse().expect("a good id");
    let builder = Envelope::new(event_type).now(now).id(id).aggregate_type(aggregate_type);
    match key {
        Some(key) => builder.aggregate_id(key),
        None => builder,
    }
}
