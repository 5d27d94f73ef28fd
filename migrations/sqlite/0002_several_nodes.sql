-- Several nodes, order by aggregate, paused routes, and a record of what is done by hand.

-- Until when an event is held. due_at stays the time when it was ready, so that a claim writes no index. What a host of the
-- version before holds just now is due again when its lease ends.
UPDATE outbox_event SET locked_by = NULL, locked_at = NULL WHERE locked_by IS NOT NULL;
ALTER TABLE outbox_event ADD COLUMN lease_end INTEGER
  CONSTRAINT what_is_held_has_a_lease CHECK ((locked_by IS NULL) = (lease_end IS NULL));
-- The seq of the earlier event of its aggregate that an event waits behind; it has no due_at then.
ALTER TABLE outbox_event ADD COLUMN behind INTEGER;
-- 1: DEAD, and later events of its aggregate wait until it is replayed, skipped or discarded.
ALTER TABLE outbox_event ADD COLUMN blocks INTEGER NOT NULL DEFAULT 0;
-- Which of 256 lanes an event belongs to; a lane is worked on by one node at a time. All events of an aggregate are in the same
-- lane, those without one are spread. SQLite has no hash function: this one takes where names mostly differ, their ends.
ALTER TABLE outbox_event ADD COLUMN lane INTEGER GENERATED ALWAYS AS (
  (length(coalesce(nullif(aggregate_id, ''), event_id)) * 97
   + unicode(coalesce(nullif(aggregate_id, ''), event_id)) * 83
   + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -1)) * 195
   + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -2)) * 91
   + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -3)) * 225
   + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -4)) * 231
   + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -5)) * 227) % 256) VIRTUAL;

-- What is dead, oldest first: that is how it is listed and brought back, whatever the filter.
DROP INDEX outbox_event_dead;
CREATE INDEX outbox_event_dead ON outbox_event (seq) WHERE status = 3;
-- The line of an aggregate: what its later events may have to wait for.
CREATE INDEX outbox_event_line ON outbox_event (aggregate_type, aggregate_id, seq)
WHERE aggregate_id IS NOT NULL AND (status IN (0, 2) OR blocks = 1);
-- What waits behind which event.
CREATE INDEX outbox_event_behind ON outbox_event (behind, seq) WHERE behind IS NOT NULL;

-- The hosts that work on this table.
CREATE TABLE outbox_event_node (
  owner       TEXT    NOT NULL PRIMARY KEY,        -- what stands in locked_by; another one at every start
  label       TEXT    NOT NULL,                    -- host name and process number
  mode        TEXT    NOT NULL,
  version     TEXT    NOT NULL,
  started_at  INTEGER NOT NULL,
  alive_until INTEGER NOT NULL
) WITHOUT ROWID;

-- Who works on which lane, and until when unless renewed.
CREATE TABLE outbox_event_lane (
  lane      INTEGER NOT NULL PRIMARY KEY,
  owner     TEXT,
  lease_end INTEGER
) WITHOUT ROWID;
INSERT INTO outbox_event_lane (lane)
WITH RECURSIVE lane (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM lane WHERE number < 255) SELECT number FROM lane;

-- Routes whose events are parked until somebody resumes them.
CREATE TABLE outbox_event_pause (
  aggregate_type TEXT    NOT NULL,
  event_type     TEXT    NOT NULL,
  paused_at      INTEGER NOT NULL,
  paused_by      TEXT    NOT NULL,
  reason         TEXT,
  PRIMARY KEY (aggregate_type, event_type)
) WITHOUT ROWID;

-- What was done by hand: who, what, to what, to how many, why.
CREATE TABLE outbox_event_audit (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  at       INTEGER NOT NULL,
  actor    TEXT    NOT NULL,
  action   TEXT    NOT NULL,
  selector TEXT    NOT NULL,                       -- JSON: an event's id, a route, or a filter
  count    INTEGER NOT NULL,
  reason   TEXT
);

DROP VIEW outbox_event_readable;
CREATE VIEW outbox_event_readable AS
SELECT seq, event_id, aggregate_type, event_type, aggregate_id, tenant_id,
       CASE status WHEN 0 THEN 'NEW' WHEN 1 THEN 'DONE' WHEN 2 THEN 'RETRY' WHEN 3 THEN 'DEAD' END AS status,
       attempts, deferrals, claims, replays, parked, behind, blocks, last_error, headers, content_type,
       CASE WHEN content_type LIKE 'application/json%' THEN CAST(payload AS TEXT) END AS payload,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1e6, 'unixepoch') AS available_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1e6, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', done_at / 1e6, 'unixepoch') AS done_at,
       locked_by, strftime('%Y-%m-%dT%H:%M:%fZ', lease_end / 1e6, 'unixepoch') AS lease_end
FROM outbox_event;
