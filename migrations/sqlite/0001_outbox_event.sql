-- The outbox. Any program may write to it with a plain INSERT inside its own transaction:
--
--   INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload) VALUES ('OrderPlaced', 'Order', '42', '{"total":9.5}');
--
-- event_type and payload are required, everything else has a default. To put a delivery off, set available_at.
-- All times are microseconds since 1970-01-01T00:00:00Z, UTC.

CREATE TABLE outbox_event (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of insertion; never reused
  event_id       TEXT    NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(16)))),
  event_type     TEXT    NOT NULL,
  aggregate_type TEXT    NOT NULL DEFAULT '__GLOBAL__',
  aggregate_id   TEXT,
  tenant_id      TEXT,
  headers        TEXT,                               -- a JSON object of strings, or NULL
  content_type   TEXT    NOT NULL DEFAULT 'application/json',
  payload        BLOB    NOT NULL,                   -- the bytes written are the bytes delivered
  status         INTEGER NOT NULL DEFAULT 0,         -- 0 NEW, 1 DONE, 2 RETRY, 3 DEAD
  attempts       INTEGER NOT NULL DEFAULT 0,         -- counted failures
  deferrals      INTEGER NOT NULL DEFAULT 0,         -- times the listener asked for later, not counted as attempts
  claims         INTEGER NOT NULL DEFAULT 0,         -- claims since the last outcome: many of them mean that it kills its host
  claim_seq      INTEGER NOT NULL DEFAULT 0,         -- claims in all: the fence, under which every outcome is written
  replays        INTEGER NOT NULL DEFAULT 0,         -- times it was brought back from DEAD
  occurred_at    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  created_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  available_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  -- Ready time while waiting, end of the lease while claimed, NULL when finished or parked.
  due_at         INTEGER          DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  expires_at     INTEGER,                            -- given up, DEAD, if not done by then
  done_at        INTEGER,                            -- when it became DONE or DEAD
  parked         TEXT,                               -- why a due event waits for something that is not time
  locked_by      TEXT,
  locked_at      INTEGER,
  last_error     TEXT,
  -- What a plain INSERT must not say: the host could neither read such a row nor ever be done with it.
  CONSTRAINT event_id_has_1_to_36_characters CHECK (length(event_id) BETWEEN 1 AND 36),
  CONSTRAINT claim_seq_is_not_negative CHECK (claim_seq >= 0),
  CONSTRAINT only_unfinished_events_are_due CHECK (status IN (0, 2) OR (status IN (1, 3) AND due_at IS NULL))
);

-- What is due. Finished and parked rows have no due_at, so they cost the claim nothing.
CREATE INDEX outbox_event_due ON outbox_event (due_at, seq) WHERE due_at IS NOT NULL;
-- What is old enough to purge.
CREATE INDEX outbox_event_done ON outbox_event (status, done_at) WHERE done_at IS NOT NULL;
-- What is dead, by route.
CREATE INDEX outbox_event_dead ON outbox_event (aggregate_type, event_type, seq) WHERE status = 3;
-- What is parked, by route.
CREATE INDEX outbox_event_parked ON outbox_event (aggregate_type, event_type, seq) WHERE parked IS NOT NULL;

-- Routes that have had a listener: their events are parked, never killed, while it is away.
CREATE TABLE outbox_event_route (
  aggregate_type TEXT    NOT NULL,
  event_type     TEXT    NOT NULL,
  first_seen_at  INTEGER NOT NULL,
  PRIMARY KEY (aggregate_type, event_type)
) WITHOUT ROWID;

-- For people: readable times and payloads.
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
