//! One queue of all events: reading its front.

use super::primary::on_primary;
use super::row::{event_columns, read_columns};
use crate::read_statement::ReadStatement;

/// Reads the unfinished events whose time has come, in the order of their `seq`, up to the first that is neither deliverable nor in $5:
/// no event may overtake it. Returns nothing unless the owner is alive by the database's clock and holds all partitions. Each row has
/// the `seq` of the last earlier event that it waits for. $1 the owner, $2 most rows, $3 most bytes, $4 the youngest age in
/// microseconds, $5 the events in hand.
macro_rules! read_front {
    () => {
        ReadStatement { with_payloads: read_front!(with_payload), without_payloads: read_front!(without_payload) }
    };
    ($payload:ident) => {
        concat!(
            "\nWITH front AS (
  SELECT ",
            event_columns!(),
            ", headers, payload, partition_id, due_at, lease_end,
         octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes, available_at <= now() AS is_waited_for,
         seq = ANY ($5::bigint[]) AS is_held,
         coalesce(due_at <= now() AND (lease_end IS NULL OR lease_end <= now())
                  AND NOT (created_at > now() - $4::bigint * interval '1 microsecond'
                           AND created_at <= now() + $4::bigint * interval '1 microsecond'), false) AS is_free
  FROM outbox_event WHERE done_at IS NULL AND status IN (0, 2) AND (available_at <= now() OR due_at <= now())
  ORDER BY seq LIMIT $2::bigint + cardinality($5::bigint[])),
marked AS (
  SELECT front.*, bool_and(is_held OR is_free) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS is_clear,
         sum(CASE WHEN is_held THEN 0 ELSE bytes END) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before,
         max(seq) FILTER (WHERE is_waited_for) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
  FROM front)
SELECT ",
            read_columns!($payload),
            ", earlier AS behind
FROM marked AS chosen
WHERE ",
            on_primary!(),
            " AND is_clear AND NOT is_held AND bytes_before < $3::bigint
  AND (SELECT count(*) FROM outbox_event_partition AS held WHERE held.owner = $1::text) = 256
  AND EXISTS (SELECT FROM outbox_event_node AS node WHERE node.owner = $1::text AND alive_until > now())
ORDER BY seq LIMIT $2::bigint"
        )
    };
}

pub(super) const READ_FRONT: ReadStatement = read_front!();
