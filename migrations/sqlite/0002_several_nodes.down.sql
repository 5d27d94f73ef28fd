DROP VIEW outbox_event_readable;
CREATE VIEW outbox_event_readable AS
SELECT seq, event_id, aggregate_type, event_type, aggregate_id, tenant_id,
       CASE status WHEN 0 THEN 'NEW' WHEN 1 THEN 'DONE' WHEN 2 THEN 'RETRY' WHEN 3 THEN 'DEAD' END AS status,
       attempts, deferrals, claims, replays, parked, last_error, headers, content_type,
       CASE WHEN content_type LIKE 'application/json%' THEN CAST(payload AS TEXT) END AS payload,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1e6, 'unixepoch') AS available_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1e6, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', done_at / 1e6, 'unixepoch') AS done_at,
       locked_by
FROM outbox_event;

-- What waited behind others is due again.
UPDATE outbox_event SET due_at = available_at WHERE behind IS NOT NULL;
-- What is held is due when its lease ends.
UPDATE outbox_event SET due_at = lease_end WHERE lease_end IS NOT NULL;
ALTER TABLE outbox_event DROP COLUMN lease_end;
DROP INDEX outbox_event_behind;
DROP INDEX outbox_event_dead;
CREATE INDEX outbox_event_dead ON outbox_event (aggregate_type, event_type, seq) WHERE status = 3;
DROP INDEX outbox_event_line;
ALTER TABLE outbox_event DROP COLUMN lane;
ALTER TABLE outbox_event DROP COLUMN blocks;
ALTER TABLE outbox_event DROP COLUMN behind;
DROP TABLE outbox_event_audit;
DROP TABLE outbox_event_pause;
DROP TABLE outbox_event_lane;
DROP TABLE outbox_event_node;
