//! Routes, and the events that are parked for them.

use async_trait::async_trait;
use outbox::event::{Fence, OwnerId};
use outbox::store::{Audit, RouteRecord, RouteStore};
use outbox::{Route, StoreError};
use tokio::time::Instant;

use super::MemoryStore;
use crate::listener::last_route;
use crate::table::route;
use crate::world::World;

#[async_trait]
impl RouteStore for MemoryStore {
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        self.run("routes", |world| {
            let now = world.table.now;
            let record = |(route, row): (Route, crate::looking::RouteRow)| {
                let mut record = RouteRecord::new(route);
                record.only_relayed = world.only_relayed.contains(&record.route);
                record.first_seen_at = row.remembered.then_some(now);
                record.paused_at = row.paused_by.is_some().then_some(now);
                (record.paused_by, record.pause_reason) = (row.paused_by, row.pause_reason);
                record
            };
            world.table.routes().into_iter().map(record).collect()
        })
        .await
    }

    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        unreachable!("only people ask how many events a route has")
    }

    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError> {
        self.run("parked_route", |world| {
            let parked = world.table.rows.values().filter(|row| row.parked.is_some()).map(route);
            parked.filter(|route| after.is_none_or(|after| route > after)).min()
        })
        .await
    }

    async fn unpark(
        &self,
        owner: &OwnerId,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: u32,
    ) -> Result<Vec<Fence>, StoreError> {
        self.run("unpark", |world| {
            let parked = world.table.parked(routes, partitions);
            let freed = &parked[..parked.len().min(limit as usize)];
            world.table.unpark(owner, routes, partitions, limit, freed).expect("the model takes what follows it");
            if !freed.is_empty() {
                let line = format!("{} unparks {freed:?}", world.name(self.life));
                world.note(line);
            }
            freed.iter().map(|seq| Fence::new(*seq, 0, world.table.rows[seq].claim_seq)).collect()
        })
        .await
    }

    async fn remember_routes(&self, own: &[Route], relayed: &[Route]) -> Result<(), StoreError> {
        self.run("remember_routes", |world| world.remember_routes(own, relayed)).await
    }

    async fn pause(&self, _: &Route, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people pause a route")
    }

    async fn resume(&self, _: &Route, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people resume a route")
    }

    async fn forget_route(&self, _: &Route, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people forget a route")
    }
}

impl World {
    fn remember_routes(&mut self, own: &[Route], relayed: &[Route]) {
        for route in own {
            self.table.remembered.insert(route.clone());
            self.only_relayed.remove(route);
        }
        for route in relayed {
            if self.table.remembered.insert(route.clone()) {
                self.only_relayed.insert(route.clone());
            }
        }
        if own.contains(&last_route()) {
            self.had_listener_since.get_or_insert_with(Instant::now);
        }
    }
}
