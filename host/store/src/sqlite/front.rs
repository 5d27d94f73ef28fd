//! One queue of all events: reading its front.

use super::row::{event_columns, read_columns};
use crate::read_statement::ReadStatement;

/// Reads the unfinished events whose time has come, in the order of their `seq`, up to the first that is neither deliverable nor in ?6:
/// no event may overtake it. Returns nothing unless the owner is alive by the database's clock and holds all partitions. Each row has
/// the `seq` of the last earlier event that it waits for. ?1 now, ?2 the owner, ?3 most rows, ?4 most bytes, ?5 the newest insertion
/// time, ?6 the events in hand as a JSON list.
macro_rules! read_front {
    () => {
        ReadStatement { with_payloads: read_front!(with_payload), without_payloads: read_front!(without_payload) }
    };
    ($payload:ident) => {
        concat!(
            "\nWITH front AS (
  SELECT seq, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes, available_at <= ?1 AS is_waited_for,
         seq IN (SELECT value FROM json_each(?6)) AS is_held,
         due_at IS NOT NULL AND due_at <= ?1 AND (lease_end IS NULL OR lease_end <= ?1) AND (created_at <= ?5 OR created_at - ?1 > ?1 - ?5) AS is_free
  FROM outbox_event INDEXED BY outbox_event_open
  WHERE done_at IS NULL AND status IN (0, 2) AND (available_at <= ?1 OR due_at <= ?1)
    AND (claim_seq > 0 OR due_at IS NULL OR due_at <= ?1)
  ORDER BY seq LIMIT ?3 + json_array_length(?6)),
marked AS (
  SELECT seq, bytes, is_held, min(is_held OR is_free) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS is_clear,
         sum(iif(is_held, 0, bytes)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before,
         max(iif(is_waited_for, seq, NULL)) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
  FROM front)
SELECT ",
            read_columns!($payload),
            ", chosen.earlier AS behind
FROM marked AS chosen CROSS JOIN outbox_event AS event ON event.seq = chosen.seq
WHERE chosen.is_clear AND NOT chosen.is_held AND chosen.bytes_before < ?4
  AND (SELECT count(*) FROM outbox_event_partition AS held
       WHERE held.owner = (SELECT owner FROM outbox_event_node WHERE owner = ?2 AND alive_until > ?1)) = 256
ORDER BY chosen.seq LIMIT ?3"
        )
    };
}

pub(super) const READ_FRONT: ReadStatement = read_front!();
