//! Routes that had a listener or are paused, and the events that wait for theirs.

use async_trait::async_trait;
use outbox_event::{Fence, OwnerId, Route};
use serde_json::json;
use sqlx::postgres::PgBindIterExt;

use super::audit::{doing, done};
use super::partition::column;
use super::primary::on_primary;
use super::run::Statement;
use super::{PostgresStore, Run};
use crate::route::{by_name, names as names_of};
use crate::row::as_it_is;
use crate::{Audit, MOST_ROUTES, RouteRecord, RouteStore, StoreError, row};

/// Route by route, each from the index on parked routes: with bounds, since the planner would take an equal name for granted where one
/// route has most of the rows. What another host is just unparking is stepped over.
/// $1 aggregate types, $2 event types, $3 most rows, $4 the owner, $5 partitions, or NULL for all.
pub(super) const UNPARK: &str = "
UPDATE ONLY outbox_event
SET parked = NULL, due_at = available_at, locked_by = $4::text, locked_at = now(), lease_end = now()
WHERE ctid = ANY (ARRAY (
  SELECT waiting.place FROM unnest($1::text[], $2::text[]) AS route (aggregate_type, event_type)
  CROSS JOIN LATERAL (
    SELECT ctid AS place FROM ONLY outbox_event
    WHERE outbox_event.aggregate_type = route.aggregate_type
      AND outbox_event.event_type >= route.event_type AND outbox_event.event_type <= route.event_type
      AND parked IS NOT NULL AND ($5::smallint[] IS NULL OR partition_id = ANY ($5::smallint[]))
    ORDER BY outbox_event.aggregate_type, outbox_event.event_type, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS waiting
  LIMIT $3::bigint))
RETURNING seq, claim_seq";

/// $1 aggregate type, $2 event type; no name is empty. One step in the index on parked routes, however many events are parked.
const NEXT_PARKED: &str = concat!(
    "
SELECT aggregate_type, event_type FROM outbox_event
WHERE parked IS NOT NULL AND (aggregate_type, event_type) > ($1::text, $2::text)
  AND ",
    on_primary!(),
    "
ORDER BY aggregate_type, event_type LIMIT 1"
);

/// $1 aggregate types, $2 event types, $3 1 if relays take them. Distinct, since one statement updates no row twice.
const REMEMBER: &str = "
INSERT INTO outbox_event_route (aggregate_type, event_type, first_seen_at, only_relayed)
SELECT DISTINCT aggregate_type, event_type, now(), $3::smallint
FROM unnest($1::text[], $2::text[]) AS route (aggregate_type, event_type)
ORDER BY aggregate_type, event_type
ON CONFLICT (aggregate_type, event_type) DO UPDATE SET only_relayed = 0
WHERE outbox_event_route.only_relayed > excluded.only_relayed";

/// Without counts: the routes themselves are few.
const ROUTES: &str = concat!(
    "
SELECT aggregate_type, event_type, route.first_seen_at, route.only_relayed, pause.paused_at, pause.paused_by, pause.reason,
       0::bigint AS waiting, 0::bigint AS parked, 0::bigint AS blocked, 0::bigint AS dead
FROM outbox_event_route AS route FULL JOIN outbox_event_pause AS pause USING (aggregate_type, event_type)
WHERE ",
    on_primary!(),
    "
ORDER BY aggregate_type, event_type"
);

/// $1 most routes. Each number from the index that holds just those rows.
const COUNT: &str = concat!(
    "
SELECT aggregate_type, event_type, route.first_seen_at, route.only_relayed, pause.paused_at, pause.paused_by, pause.reason,
       name.waiting, name.parked, name.blocked, name.dead
FROM (
  SELECT aggregate_type, event_type, sum(waiting)::bigint AS waiting, sum(parked)::bigint AS parked,
         sum(blocked)::bigint AS blocked, sum(dead)::bigint AS dead
  FROM (
    SELECT aggregate_type, event_type, count(*) AS waiting, 0 AS parked, 0 AS blocked, 0 AS dead FROM outbox_event
    WHERE due_at IS NOT NULL GROUP BY 1, 2
    UNION ALL SELECT aggregate_type, event_type, 0, count(*), 0, 0 FROM outbox_event WHERE parked IS NOT NULL GROUP BY 1, 2
    UNION ALL SELECT aggregate_type, event_type, 0, 0, count(*), 0 FROM outbox_event WHERE behind IS NOT NULL GROUP BY 1, 2
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, count(*) FROM outbox_event WHERE status = 3 GROUP BY 1, 2
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 0 FROM outbox_event_route
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 0 FROM outbox_event_pause) AS part
  GROUP BY aggregate_type, event_type) AS name
LEFT JOIN outbox_event_route AS route USING (aggregate_type, event_type)
LEFT JOIN outbox_event_pause AS pause USING (aggregate_type, event_type)
WHERE ",
    on_primary!(),
    "
ORDER BY route.first_seen_at IS NULL AND pause.paused_at IS NULL, name.waiting + name.parked + name.blocked + name.dead DESC,
         aggregate_type, event_type
LIMIT $1::bigint"
);

/// $1 to $3 actor, reason and selector, $4 aggregate type, $5 event type.
const PAUSE: &str = "
WITH changed AS (
  INSERT INTO outbox_event_pause (aggregate_type, event_type, paused_at, paused_by, reason)
  VALUES ($4::text, $5::text, now(), $1::text, $2::text) ON CONFLICT DO NOTHING RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'pause', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

/// $1 to $3 actor, reason and selector, $4 aggregate type, $5 event type.
const RESUME: &str = "
WITH changed AS (
  DELETE FROM outbox_event_pause WHERE aggregate_type = $4::text AND event_type = $5::text RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'resume', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

/// $1 to $3 actor, reason and selector, $4 aggregate type, $5 event type.
const FORGET: &str = "
WITH pause AS (
  DELETE FROM outbox_event_pause WHERE aggregate_type = $4::text AND event_type = $5::text RETURNING 1),
route AS (
  DELETE FROM outbox_event_route WHERE aggregate_type = $4::text AND event_type = $5::text RETURNING 1),
changed AS (SELECT 1 WHERE EXISTS (SELECT 1 FROM pause) OR EXISTS (SELECT 1 FROM route)),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'forget_route', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

const READING: &str = "read the routes";

#[async_trait]
impl RouteStore for PostgresStore {
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        Ok(self.read_all(READING, self.statement(ROUTES), row::route).await?.into_iter().flatten().collect())
    }

    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        let statement = self.statement(COUNT).bind(i64::from(MOST_ROUTES));
        Ok(by_name(self.read_all(READING, statement, row::route).await?))
    }

    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError> {
        let (aggregate_type, event_type) = names_of(after);
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
        if routes.is_empty() {
            return Ok(Vec::new());
        }
        let statement = names(self.statement(UNPARK), routes).bind(i64::from(limit)).bind(owner.as_str());
        let statement = statement.bind(partitions.map(column));
        self.all("unpark events", statement).await?.iter().map(as_it_is).collect()
    }

    async fn remember_routes(&self, own: &[Route], relayed: &[Route]) -> Result<(), StoreError> {
        for (routes, only_relayed) in [(own, 0_i16), (relayed, 1)] {
            if !routes.is_empty() {
                self.execute("record routes", names(self.statement(REMEMBER), routes).bind(only_relayed)).await?;
            }
        }
        Ok(())
    }

    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        change(self, "pause a route", PAUSE, route, audit).await
    }

    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        change(self, "resume a route", RESUME, route, audit).await
    }

    async fn forget_route(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        change(self, "forget a route", FORGET, route, audit).await
    }
}

pub(super) fn names<'q>(statement: Statement<'q>, routes: &'q [Route]) -> Statement<'q> {
    statement
        .bind(routes.iter().map(|route| route.aggregate_type.as_str()).bind_iter())
        .bind(routes.iter().map(|route| route.event_type.as_str()).bind_iter())
}

async fn change(
    store: &PostgresStore,
    action: &'static str,
    sql: &'static str,
    route: &Route,
    audit: &Audit,
) -> Result<bool, StoreError> {
    let statement = doing(store, sql, audit, &json!(route)).bind(route.aggregate_type.as_str());
    store.read_one(action, statement.bind(route.event_type.as_str()), done).await
}
