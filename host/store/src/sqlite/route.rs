//! Routes that had a listener or are paused, and the events that wait for theirs.

use async_trait::async_trait;
use outbox_event::{Fence, OwnerId, Route};
use serde_json::json;

use super::audit::note;
use super::dead::noted;
use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::number::numbers;
use crate::route::{by_name, names, pairs};
use crate::row::as_it_is;
use crate::{Audit, MOST_ROUTES, RouteRecord, RouteStore, StoreError, row};

/// ?1 rows of [aggregate_type, event_type], ?2 most rows, ?3 the owner, ?4 now, ?5 partitions as a JSON list, or NULL for all.
/// The index on parked routes serves the join.
pub(super) const UNPARK: &str = "
UPDATE outbox_event SET parked = NULL, due_at = available_at, locked_by = ?3, locked_at = ?4, lease_end = ?4
WHERE seq IN (
  SELECT outbox_event.seq FROM jsonb_each(?1) AS route CROSS JOIN outbox_event
  WHERE outbox_event.aggregate_type = route.value ->> 0 AND outbox_event.event_type = route.value ->> 1
    AND outbox_event.parked IS NOT NULL
    AND (?5 IS NULL OR outbox_event.partition_id IN (SELECT value FROM json_each(?5)))
  LIMIT ?2)
RETURNING seq, claim_seq";

/// ?1 aggregate type, ?2 event type; no name is empty. One step in the index on parked routes, however many events are parked.
const NEXT_PARKED: &str = "
SELECT aggregate_type, event_type FROM outbox_event
WHERE parked IS NOT NULL AND (aggregate_type, event_type) > (?1, ?2)
ORDER BY aggregate_type, event_type LIMIT 1";

/// ?1 rows of [aggregate_type, event_type], ?2 now, ?3 1 if relays take them.
const REMEMBER: &str = "
INSERT INTO outbox_event_route (aggregate_type, event_type, first_seen_at, only_relayed)
SELECT value ->> 0, value ->> 1, ?2, ?3 FROM jsonb_each(?1) WHERE true
ON CONFLICT (aggregate_type, event_type) DO UPDATE SET only_relayed = 0
WHERE outbox_event_route.only_relayed > excluded.only_relayed";

/// Without counts: the routes themselves are few.
const ROUTES: &str = "
SELECT name.aggregate_type, name.event_type, route.first_seen_at, route.only_relayed, pause.paused_at, pause.paused_by, pause.reason,
       0 AS waiting, 0 AS parked, 0 AS blocked, 0 AS dead
FROM (SELECT aggregate_type, event_type FROM outbox_event_route
      UNION SELECT aggregate_type, event_type FROM outbox_event_pause) AS name
LEFT JOIN outbox_event_route AS route USING (aggregate_type, event_type)
LEFT JOIN outbox_event_pause AS pause USING (aggregate_type, event_type)
ORDER BY 1, 2";

/// ?1 most routes. Each number from the index that holds just those rows.
const COUNT: &str = "
SELECT name.aggregate_type, name.event_type, route.first_seen_at, route.only_relayed, pause.paused_at, pause.paused_by, pause.reason,
       name.waiting, name.parked, name.blocked, name.dead
FROM (
  SELECT aggregate_type, event_type, sum(waiting) AS waiting, sum(parked) AS parked, sum(blocked) AS blocked, sum(dead) AS dead
  FROM (
    SELECT aggregate_type, event_type, 1 AS waiting, 0 AS parked, 0 AS blocked, 0 AS dead FROM outbox_event
    WHERE due_at IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 1, 0, 0 FROM outbox_event WHERE parked IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 1, 0 FROM outbox_event WHERE behind IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 1 FROM outbox_event WHERE status = 3
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 0 FROM outbox_event_route
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 0 FROM outbox_event_pause)
  GROUP BY aggregate_type, event_type) AS name
LEFT JOIN outbox_event_route AS route USING (aggregate_type, event_type)
LEFT JOIN outbox_event_pause AS pause USING (aggregate_type, event_type)
ORDER BY route.first_seen_at IS NULL AND pause.paused_at IS NULL, name.waiting + name.parked + name.blocked + name.dead DESC, 1, 2 LIMIT ?1";

/// ?1 aggregate type, ?2 event type, ?3 now, ?4 who, ?5 why.
const PAUSE: &str = "
INSERT INTO outbox_event_pause (aggregate_type, event_type, paused_at, paused_by, reason) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING";

const RESUME: &str = "DELETE FROM outbox_event_pause WHERE aggregate_type = ?1 AND event_type = ?2";

const FORGET: [&str; 2] = [
    "DELETE FROM outbox_event_pause WHERE aggregate_type = ?1 AND event_type = ?2",
    "DELETE FROM outbox_event_route WHERE aggregate_type = ?1 AND event_type = ?2",
];

const READING: &str = "read the routes";

#[async_trait]
impl RouteStore for SqliteStore {
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        Ok(self.read_all(READING, self.statement(ROUTES), row::route).await?.into_iter().flatten().collect())
    }

    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        let statement = self.statement(COUNT).bind(i64::from(MOST_ROUTES));
        Ok(by_name(self.read_all(READING, statement, row::route).await?))
    }

    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError> {
        let (aggregate_type, event_type) = names(after);
        let statement = self.statement(NEXT_PARKED).bind(aggregate_type).bind(event_type);
        Ok(self.read_optional("look for parked routes", statement, row::route_name).await?.flatten())
    }

    async fn unpark(
        &self,
        owner: &OwnerId,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: u32,
    ) -> Result<Vec<Fence>, StoreError> {
        let failed = |error| failed("unpark events", error);
        let mut writer = self.writing(failed).await?;
        let statement = self.statement(UNPARK).bind(pairs(routes)).bind(i64::from(limit));
        // Only now: while others had the writer, time went by.
        let statement = statement.bind(owner.as_str()).bind(self.now_micros()).bind(partitions.map(numbers));
        let rows = statement.fetch_all(&mut *writer).await.map_err(failed)?;
        rows.iter().map(as_it_is).collect()
    }

    async fn remember_routes(&self, own: &[Route], relayed: &[Route]) -> Result<(), StoreError> {
        for (routes, only_relayed) in [(own, 0_i16), (relayed, 1)] {
            if !routes.is_empty() {
                let statement = self.statement(REMEMBER).bind(pairs(routes)).bind(self.now_micros());
                self.execute("record routes", statement.bind(only_relayed)).await?;
            }
        }
        Ok(())
    }

    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        let (actor, reason) = audit.stored();
        let statement = self.statement(PAUSE).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str());
        let statement = statement.bind(self.now_micros()).bind(actor).bind(reason);
        Ok(noted(self, statement, audit, "pause", &json!(route)).await? == 1)
    }

    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        let statement = self.statement(RESUME).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str());
        Ok(noted(self, statement, audit, "resume", &json!(route)).await? == 1)
    }

    async fn forget_route(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let mut deleted = 0;
        for sql in FORGET {
            let statement = self.statement(sql).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str());
            let result = statement.execute(&mut *transaction).await.map_err(|error| failed("forget a route", error))?;
            deleted += result.rows_affected();
        }
        note(self, &mut transaction, audit, "forget_route", &json!(route), deleted.min(1)).await?;
        self.finish(transaction).await?;
        Ok(deleted > 0)
    }
}
