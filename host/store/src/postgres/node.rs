//! The hosts that work on the table.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::OwnerId;
use sqlx::Row;

use super::primary::on_primary;
use super::{PostgresStore, Run};
use crate::row::Named;
use crate::settle::delay_micros;
use crate::{Node, NodeRecord, NodeStore, Peer, StoreError, row};

/// A statement does not see what it writes: this host is counted by itself. Skips hosts that another host is deleting. A host that
/// owns partitions is not deleted, since its row says that they are free. A long text that did not change is not written again. $1 and $2
/// owner and mode, $3 the lease in microseconds, $4 its report, $5 the events that are stuck, $6 its listeners, $7 and
/// $8 its room and whether it has a session.
macro_rules! heartbeat {
    ($written:literal) => {
        concat!(
            "
WITH alive AS (",
            $written,
            "
  RETURNING 1),
forgotten AS (
  DELETE FROM outbox_event_node
  WHERE owner = ANY (ARRAY (SELECT owner FROM outbox_event_node
                            WHERE alive_until < now() - interval '1 day' AND owner <> $1::text
                              AND owner NOT IN (SELECT owner FROM outbox_event_partition WHERE owner IS NOT NULL)
                            FOR UPDATE SKIP LOCKED)))
SELECT CASE WHEN EXISTS (SELECT FROM alive) THEN 1 + count(*) ELSE 0 END AS live FROM outbox_event_node
WHERE alive_until > now() AND owner <> $1::text AND mode = $2::text AND room > 0"
        )
    };
}

/// $9 and $10 the label and the version, which do not change.
const REGISTER: &str = heartbeat!(
    "
  INSERT INTO outbox_event_node AS node (owner, label, mode, version, started_at, alive_until, report, stuck, listeners, room, session)
  VALUES ($1::text, $9::text, $2::text, $10::text, now(), now() + $3::bigint * interval '1 microsecond', $4::text,
          $5::text, $6::text, $7::integer, $8::smallint)
  ON CONFLICT (owner) DO UPDATE
  SET alive_until = excluded.alive_until, stuck = excluded.stuck, listeners = excluded.listeners, room = excluded.room,
      session = excluded.session,
      report = CASE WHEN node.report = excluded.report THEN node.report ELSE excluded.report END"
);

/// Without an insert, so that it finds no row if the host has left.
const RENEW: &str = heartbeat!(
    "
  UPDATE outbox_event_node AS node
  SET alive_until = now() + $3::bigint * interval '1 microsecond', stuck = $5::text,
      listeners = $6::text, room = $7::integer, session = $8::smallint,
      report = CASE WHEN node.report = $4::text THEN node.report ELSE $4::text END
  WHERE owner = $1::text"
);

/// $1 the owner.
const LEAVE: &str = "
WITH freed AS (UPDATE outbox_event_partition SET owner = NULL WHERE owner = $1::text)
DELETE FROM outbox_event_node WHERE owner = $1::text";

/// A report of more than 1 MiB is not read.
const NODES: &str = concat!(
    "
SELECT owner, label, mode, version, started_at, alive_until, alive_until > now() AS alive, room, session,
       CASE WHEN alive_until > now() AND octet_length(report) <= 1048576 THEN report END AS report,
       CASE WHEN alive_until > now() THEN stuck END AS stuck,
       CASE WHEN alive_until > now() THEN listeners END AS listeners,
       (SELECT count(*) FROM outbox_event_partition AS held WHERE held.owner = node.owner) AS partitions
FROM outbox_event_node AS node WHERE ",
    on_primary!(),
    " AND alive_until >= now() - interval '1 day' ORDER BY started_at, owner"
);

/// $1 the owner, $2 the mode, $3 the most bytes of a report, $4 the most hosts.
const PEERS: &str = concat!(
    "
SELECT label, room, CASE WHEN octet_length(listeners) <= $3::bigint THEN listeners END AS listeners FROM outbox_event_node
WHERE ",
    on_primary!(),
    " AND alive_until > now() AND owner <> $1::text AND mode = $2::text ORDER BY owner LIMIT $4::bigint"
);

#[async_trait]
impl NodeStore for PostgresStore {
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        let (store, (stuck, listeners, room, session)) = (&self.keeping(), node.columns());
        let statement = store
            .statement(if node.is_registered { RENEW } else { REGISTER })
            .bind(node.owner.as_str())
            .bind(node.mode)
            .bind(delay_micros(lease))
            .bind(node.report.as_deref().map(json_in_ascii))
            .bind(stuck.as_deref().map(json_in_ascii))
            .bind(json_in_ascii(&listeners))
            .bind(room)
            .bind(session);
        let statement = if node.is_registered { statement } else { statement.bind(&node.label).bind(node.version) };
        store.read_one("say that this host is alive", statement, |row| row.count("live")).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        let store = &self.keeping();
        store.execute("forget this host", store.statement(LEAVE).bind(owner.as_str())).await?;
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        self.read_all("list hosts", self.statement(NODES), |row| row::node(row, row.try_get("alive")?)).await
    }

    async fn peers(&self, node: &Node) -> Result<Vec<Peer>, StoreError> {
        let store = &self.keeping();
        let statement = store.statement(PEERS).bind(node.owner.as_str()).bind(node.mode);
        let statement = statement.bind(i64::from(Peer::MOST_BYTES)).bind(i64::from(Peer::MOST));
        store.read_all("look at the other hosts", statement, row::peer).await
    }
}

/// Escapes all characters of a JSON text that are not ASCII. A database that does not store UTF-8 may lack them, and would refuse the
/// whole heartbeat. JSON has such characters only in strings.
fn json_in_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "a": "refused… \"ü\" \\ 🦀" });

        let ascii = json_in_ascii(&value.to_string());

        assert!(ascii.is_ascii(), "{ascii}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&ascii).expect("JSON"), value);
    }
}
