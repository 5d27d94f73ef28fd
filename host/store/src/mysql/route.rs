//! Routes that had a listener or are paused, and the events that wait for theirs.

use async_trait::async_trait;
use outbox_event::{Fence, OwnerId, Route};
use serde_json::json;
use sqlx::mysql::MySqlConnection;

use super::audit::note;
use super::dead::noted;
use super::error::is_duplicate;
use super::keys::letters;
use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run, lock};
use crate::number::numbers;
use crate::route::{by_name, pairs};
use crate::row::{Named, as_it_is};
use crate::run::{commit_if_some, commit_or_roll_back};
use crate::{Audit, MOST_ROUTES, PARTITIONS, RouteRecord, RouteStore, StoreError, row};

/// Read without a lock: [`UNPARK`] looks again. Bound: rows of [aggregate_type, event_type], the partitions as letters, most rows.
pub(super) const CHOOSE_PARKED: &str = "
SELECT outbox_event.seq
FROM JSON_TABLE(?, '$[*]' COLUMNS (aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                   event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS route
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_parked)
  ON parked_route = CRC32(CONCAT(route.aggregate_type, '/', route.event_type))
  AND outbox_event.aggregate_type = route.aggregate_type AND outbox_event.event_type = route.event_type
WHERE SUBSTR(?, partition_id + 1, 1) = '1'
LIMIT ?";

/// One step in the index on parked routes, which is in the order of the names' checksums, however many events are parked.
const FIRST_PARKED: &str = concat!(
    "
SELECT aggregate_type, event_type FROM outbox_event FORCE INDEX (outbox_parked)
WHERE parked_route IS NOT NULL AND ",
    on_primary!(),
    " ORDER BY parked_route LIMIT 1"
);

/// Of two routes with one checksum the second is found when nothing of the first is parked any more. Bound: aggregate type, event
/// type.
const NEXT_PARKED: &str = concat!(
    "
SELECT aggregate_type, event_type FROM outbox_event FORCE INDEX (outbox_parked)
WHERE parked_route > CRC32(CONCAT(?, '/', ?)) AND ",
    on_primary!(),
    " ORDER BY parked_route LIMIT 1"
);

/// Read under the lock: another host may have unparked some meanwhile. Bound: a JSON list of seq.
const STILL_PARKED: &str = "
SELECT outbox_event.seq, claim_seq FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
WHERE parked IS NOT NULL";

/// Bound: a JSON list of seq, the owner.
const UNPARK: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET parked = NULL, due_at = available_at, locked_by = ?, locked_at = UTC_TIMESTAMP(6), lease_end = UTC_TIMESTAMP(6)";

/// Bound: 1 if relays take them, rows of [aggregate_type, event_type], the first again.
const REMEMBER: &str = "
INSERT INTO outbox_event_route (aggregate_type, event_type, first_seen_at, only_relayed)
SELECT aggregate_type, event_type, UTC_TIMESTAMP(6), ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                   event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS route
ON DUPLICATE KEY UPDATE only_relayed = LEAST(outbox_event_route.only_relayed, ?)";

/// Without counts: the routes themselves are few.
const ROUTES: &str = concat!(
    "
SELECT name.aggregate_type, name.event_type, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', route.first_seen_at) AS first_seen_at,
       route.only_relayed, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', pause.paused_at) AS paused_at, pause.paused_by, pause.reason,
       0 AS waiting, 0 AS parked, 0 AS blocked, 0 AS dead
FROM (SELECT aggregate_type, event_type FROM outbox_event_route
      UNION SELECT aggregate_type, event_type FROM outbox_event_pause) AS name
LEFT JOIN outbox_event_route AS route ON route.aggregate_type = name.aggregate_type AND route.event_type = name.event_type
LEFT JOIN outbox_event_pause AS pause ON pause.aggregate_type = name.aggregate_type AND pause.event_type = name.event_type
WHERE ",
    on_primary!(),
    "
ORDER BY 1, 2"
);

/// Bound: most routes. Each number from the index that those rows stand apart in.
const COUNT: &str = concat!(
    "
SELECT name.aggregate_type, name.event_type, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', route.first_seen_at) AS first_seen_at,
       route.only_relayed, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', pause.paused_at) AS paused_at, pause.paused_by, pause.reason,
       name.waiting, name.parked, name.blocked, name.dead
FROM (
  SELECT aggregate_type, event_type, CAST(SUM(waiting) AS SIGNED) AS waiting, CAST(SUM(parked) AS SIGNED) AS parked,
         CAST(SUM(blocked) AS SIGNED) AS blocked, CAST(SUM(dead) AS SIGNED) AS dead
  FROM (
    SELECT aggregate_type, event_type, 1 AS waiting, 0 AS parked, 0 AS blocked, 0 AS dead
    FROM outbox_event FORCE INDEX (outbox_due) WHERE due_at IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 1, 0, 0
    FROM outbox_event FORCE INDEX (outbox_parked) WHERE parked_route IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 1, 0
    FROM outbox_event FORCE INDEX (outbox_behind) WHERE behind IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 1
    FROM outbox_event FORCE INDEX (outbox_dead) WHERE dead_route IS NOT NULL
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 0 FROM outbox_event_route
    UNION ALL SELECT aggregate_type, event_type, 0, 0, 0, 0 FROM outbox_event_pause) AS one
  GROUP BY aggregate_type, event_type) AS name
LEFT JOIN outbox_event_route AS route ON route.aggregate_type = name.aggregate_type AND route.event_type = name.event_type
LEFT JOIN outbox_event_pause AS pause ON pause.aggregate_type = name.aggregate_type AND pause.event_type = name.event_type
WHERE ",
    on_primary!(),
    "
ORDER BY route.first_seen_at IS NULL AND pause.paused_at IS NULL, name.waiting + name.parked + name.blocked + name.dead DESC, 1, 2 LIMIT ?"
);

/// Bound: aggregate type, event type, who, why.
const PAUSE: &str = "
INSERT INTO outbox_event_pause (aggregate_type, event_type, paused_at, paused_by, reason)
VALUES (?, ?, UTC_TIMESTAMP(6), ?, ?)";

const RESUME: &str = "DELETE FROM outbox_event_pause WHERE aggregate_type = ? AND event_type = ?";

const FORGET: [&str; 2] = [
    "DELETE FROM outbox_event_pause WHERE aggregate_type = ? AND event_type = ?",
    "DELETE FROM outbox_event_route WHERE aggregate_type = ? AND event_type = ?",
];

const READING: &str = "read the routes";

#[async_trait]
impl RouteStore for MySqlStore {
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        Ok(self.read_all(READING, self.statement(ROUTES), row::route).await?.into_iter().flatten().collect())
    }

    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        let statement = self.statement(COUNT).bind(i64::from(MOST_ROUTES));
        Ok(by_name(self.read_all(READING, statement, row::route).await?))
    }

    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError> {
        let statement = match after {
            None => self.statement(FIRST_PARKED),
            Some(route) => self.statement(NEXT_PARKED).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str()),
        };
        Ok(self.read_optional("look for parked routes", statement, row::route_name).await?.flatten())
    }

    async fn unpark(
        &self,
        owner: &OwnerId,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: u32,
    ) -> Result<Vec<Fence>, StoreError> {
        let of = partitions.map_or_else(|| "1".repeat(usize::from(PARTITIONS)), letters);
        let statement = self.statement(CHOOSE_PARKED).bind(pairs(routes)).bind(of).bind(i64::from(limit));
        let mut chosen: Vec<u64> = self.read_all(UNPARK_ACTION, statement, |row| row.sequence(0)).await?;
        // A route may be asked for twice.
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        patiently(self, || try_unpark(self, owner, &chosen)).await
    }

    async fn remember_routes(&self, own: &[Route], relayed: &[Route]) -> Result<(), StoreError> {
        for (routes, only_relayed) in [(own, 0_i16), (relayed, 1)] {
            if !routes.is_empty() {
                let statement = || self.statement(REMEMBER).bind(only_relayed).bind(pairs(routes)).bind(only_relayed);
                patiently(self, || self.execute("record routes", statement())).await?;
            }
        }
        Ok(())
    }

    /// A route that is paused already is a duplicate key, which this database reports as an error of the statement alone.
    async fn pause(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        let mut transaction = self.transaction().await?;
        let paused = pause_and_note(self, &mut transaction, route, audit).await;
        Ok(commit_if_some(self, transaction, paused).await?.is_some())
    }

    async fn resume(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        let statement = || self.statement(RESUME).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str());
        Ok(noted(self, statement, audit, "resume", &json!(route)).await? == 1)
    }

    async fn forget_route(&self, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
        patiently(self, || try_to_forget(self, route, audit)).await
    }
}

/// `None` when it is paused already.
async fn pause_and_note(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    route: &Route,
    audit: &Audit,
) -> Result<Option<()>, StoreError> {
    let (actor, reason) = audit.stored();
    let statement = store.statement(PAUSE).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str());
    match statement.bind(actor).bind(reason).execute(&mut *connection).await {
        Err(error) if is_duplicate(&error) => return Ok(None),
        result => result.map_err(|error| store.failed("pause", error))?,
    };
    note(store, connection, audit, "pause", &json!(route), 1).await.map(Some)
}

async fn try_to_forget(store: &MySqlStore, route: &Route, audit: &Audit) -> Result<bool, StoreError> {
    let mut transaction = store.transaction().await?;
    let deleted = forget_and_note(store, &mut transaction, route, audit).await;
    Ok(commit_or_roll_back(store, transaction, deleted).await? > 0)
}

async fn forget_and_note(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    route: &Route,
    audit: &Audit,
) -> Result<u64, StoreError> {
    let mut deleted = 0;
    for sql in FORGET {
        let statement = store.statement(sql).bind(route.aggregate_type.as_str()).bind(route.event_type.as_str());
        let result = statement.execute(&mut *connection).await.map_err(|error| store.failed("forget a route", error))?;
        deleted += result.rows_affected();
    }
    note(store, connection, audit, "forget_route", &json!(route), deleted.min(1)).await?;
    Ok(deleted)
}

const UNPARK_ACTION: &str = "unpark events";

async fn try_unpark(store: &MySqlStore, owner: &OwnerId, chosen: &[u64]) -> Result<Vec<Fence>, StoreError> {
    let mut transaction = store.transaction().await?;
    let unparked = unpark_free(store, &mut transaction, owner, chosen).await;
    commit_or_roll_back(store, transaction, unparked).await
}

async fn unpark_free(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    chosen: &[u64],
) -> Result<Vec<Fence>, StoreError> {
    let failed = |error| store.failed(UNPARK_ACTION, error);
    let free = lock::free(store, connection, chosen).await?;
    let parked = store.statement(STILL_PARKED).bind(numbers(&free)).fetch_all(&mut *connection).await.map_err(failed)?;
    let parked = parked.iter().map(as_it_is).collect::<Result<Vec<_>, _>>()?;
    let sequences: Vec<u64> = parked.iter().map(|fence| fence.sequence).collect();
    let statement = store.statement(UNPARK).bind(numbers(&sequences)).bind(owner.as_str());
    statement.execute(connection).await.map_err(failed)?;
    Ok(parked)
}
