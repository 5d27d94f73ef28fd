-- The outbox. Any program may write to it with a plain INSERT inside its own transaction:
--
--   INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload) VALUES ('OrderPlaced', 'Order', '42', '{"total":9.5}');
--
-- event_type and payload are required, everything else has a default. To put a delivery off, set available_at.
-- All times are microseconds since 1970-01-01T00:00:00Z, UTC. A value of another type is refused, so each program that opens the file
-- needs SQLite 3.37 (2021) or later.

CREATE TABLE outbox_event (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of insertion; never reused
  event_id       TEXT    NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(16)))),
  event_type     TEXT    NOT NULL,
  aggregate_type TEXT    NOT NULL DEFAULT '__GLOBAL__',
  aggregate_id   TEXT,                               -- NULL or '': the event belongs to no aggregate
  tenant_id      TEXT,
  headers        TEXT,                               -- a JSON object of strings, or NULL
  content_type   TEXT    NOT NULL DEFAULT 'application/json',
  payload        ANY     NOT NULL,                   -- the bytes of a BLOB, or of a text in UTF-8
  status         INTEGER NOT NULL DEFAULT 0,         -- 0 NEW, 1 DONE, 2 RETRY, 3 DEAD
  attempts       INTEGER NOT NULL DEFAULT 0,         -- counted failures
  deferrals      INTEGER NOT NULL DEFAULT 0,         -- times the listener asked for later, not counted as attempts
  claims         INTEGER NOT NULL DEFAULT 0,         -- claims since the last outcome
  starts         INTEGER NOT NULL DEFAULT 0,         -- starts alone since then: many of them mean that it stops its host
  claim_seq      INTEGER NOT NULL DEFAULT 0,         -- claims, outcomes and replays in all: under it every outcome is written
  replays        INTEGER NOT NULL DEFAULT 0,         -- times it was brought back from DEAD
  occurred_at    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  created_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  available_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  -- When it is ready; NULL when finished, parked or behind another. A claim leaves it as it is: an index need not be written.
  -- If only its writer has set it, no event waits for this one before that time.
  due_at         INTEGER          DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  expires_at     INTEGER,                            -- given up, DEAD, if not done by then
  done_at        INTEGER,                            -- when it became DONE or DEAD
  parked         TEXT,                               -- why a due event waits for something that is not time
  -- The seq of the earlier event of its aggregate that an event waits behind; it has no due_at then.
  behind         INTEGER,
  -- 1: DEAD, and later events of its aggregate wait until it is replayed, skipped or discarded.
  blocks         INTEGER NOT NULL DEFAULT 0,
  locked_by      TEXT,
  locked_at      INTEGER,
  lease_end      INTEGER,                            -- until when it is held; then it may be claimed again
  last_error     TEXT,
  wait_reason    TEXT,                               -- why it last waited although it was due; done keeps it
  wait_since     INTEGER,                            -- since when it has been given back without an attempt; done keeps it
  last_cost      TEXT,                               -- what the last attempt whose cost was stored has cost, as JSON
  -- Which of 256 partitions an event belongs to; one host at a time reads a partition. All events of an aggregate are in the same
  -- partition, events without one are spread. SQLite has no hash function: this one takes where names mostly differ, their ends.
  partition_id   INTEGER GENERATED ALWAYS AS (
    (length(coalesce(nullif(aggregate_id, ''), event_id)) * 97
     + unicode(coalesce(nullif(aggregate_id, ''), event_id)) * 83
     + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -1)) * 195
     + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -2)) * 91
     + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -3)) * 225
     + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -4)) * 231
     + unicode(substr(coalesce(nullif(aggregate_id, ''), event_id), -5)) * 227) % 256) VIRTUAL,
  -- What a plain INSERT must not say: the host could neither read such a row nor ever be done with it.
  CONSTRAINT seq_is_positive CHECK (seq > 0),
  CONSTRAINT event_id_has_1_to_36_visible_ascii_characters CHECK (
    length(event_id) BETWEEN 1 AND 36 AND event_id NOT GLOB '*[^!-~]*' AND instr(event_id, char(0)) = 0),
  CONSTRAINT aggregate_id_does_not_begin_with_nul CHECK (partition_id IS NOT NULL),
  CONSTRAINT payload_is_a_blob_or_text CHECK (typeof(payload) IN ('blob', 'text')),
  -- Seconds, milliseconds and nanoseconds of this century. occurred_at delays nothing, and may be long ago.
  CONSTRAINT times_are_in_microseconds CHECK (
    created_at NOT BETWEEN 946684800 AND 4102444800 AND created_at NOT BETWEEN 946684800000 AND 253402300799999
    AND created_at NOT BETWEEN 946684800000000000 AND 4102444800000000000
    AND available_at NOT BETWEEN 946684800 AND 4102444800 AND available_at NOT BETWEEN 946684800000 AND 253402300799999
    AND available_at NOT BETWEEN 946684800000000000 AND 4102444800000000000
    AND coalesce(due_at, 0) NOT BETWEEN 946684800 AND 4102444800 AND coalesce(due_at, 0) NOT BETWEEN 946684800000 AND 253402300799999
    AND coalesce(due_at, 0) NOT BETWEEN 946684800000000000 AND 4102444800000000000
    AND coalesce(expires_at, 0) NOT BETWEEN 946684800 AND 4102444800 AND coalesce(expires_at, 0) NOT BETWEEN 946684800000 AND 253402300799999
    AND coalesce(expires_at, 0) NOT BETWEEN 946684800000000000 AND 4102444800000000000),
  CONSTRAINT claim_seq_is_below_2_to_the_62 CHECK (claim_seq BETWEEN 0 AND 4611686018427387903),
  CONSTRAINT only_unfinished_events_are_due CHECK (status IN (0, 2) OR (status IN (1, 3) AND due_at IS NULL)),
  CONSTRAINT what_is_held_has_a_lease CHECK ((locked_by IS NULL) = (lease_end IS NULL)),
  CONSTRAINT what_is_unfinished_is_due_or_waits CHECK (
    status NOT IN (0, 2) OR due_at IS NOT NULL OR behind IS NOT NULL OR parked IS NOT NULL),
  -- An event that was unparked has a lease that has ended.
  CONSTRAINT what_is_held_was_claimed CHECK (claim_seq > 0 OR coalesce(lease_end <= locked_at, lease_end IS NULL))
) STRICT;

-- What is due. Finished and parked rows have no due_at, so they cost the claim nothing.
CREATE INDEX outbox_event_due ON outbox_event (due_at, seq) WHERE due_at IS NOT NULL;
-- What is old enough to purge.
CREATE INDEX outbox_event_done ON outbox_event (status, done_at) WHERE done_at IS NOT NULL;
-- What is dead, oldest first: that is how it is listed and brought back, whatever the filter.
CREATE INDEX outbox_event_dead ON outbox_event (seq) WHERE status = 3;
-- What is parked, by route.
CREATE INDEX outbox_event_parked ON outbox_event (aggregate_type, event_type, seq) WHERE parked IS NOT NULL;
-- What waits behind which event.
CREATE INDEX outbox_event_behind ON outbox_event (behind, seq) WHERE behind IS NOT NULL;
-- Events that failed or that their listener deferred, in the order of insertion. No other event has an entry.
CREATE INDEX outbox_event_retry ON outbox_event (seq)
WHERE due_at IS NOT NULL AND (status = 2 OR status = 0 AND deferrals > 0);
-- The modes `ordered` and `ordered_by_aggregate` need one more index each: see `outbox migrate add-index`.

-- Routes that have had a listener: their events are parked, never killed, while it is away.
CREATE TABLE outbox_event_route (
  aggregate_type TEXT    NOT NULL,
  event_type     TEXT    NOT NULL,
  first_seen_at  INTEGER NOT NULL,
  only_relayed   INTEGER NOT NULL,   -- 1: only relays have answered it, so a relay's pattern may take its events, too
  PRIMARY KEY (aggregate_type, event_type)
) WITHOUT ROWID;

-- Routes whose events are parked until somebody resumes them.
CREATE TABLE outbox_event_pause (
  aggregate_type TEXT    NOT NULL,
  event_type     TEXT    NOT NULL,
  paused_at      INTEGER NOT NULL,
  paused_by      TEXT    NOT NULL,
  reason         TEXT,
  PRIMARY KEY (aggregate_type, event_type)
) WITHOUT ROWID;

-- The hosts that work on this table.
CREATE TABLE outbox_event_node (
  owner       TEXT    NOT NULL PRIMARY KEY,        -- what stands in locked_by; another one at every start
  label       TEXT    NOT NULL,                    -- host name and process number
  mode        TEXT    NOT NULL,
  version     TEXT    NOT NULL,
  started_at  INTEGER NOT NULL,
  alive_until INTEGER NOT NULL,
  stuck       TEXT,                                -- events that are stuck at it, a JSON list
  listeners   TEXT,                                -- which it has, and which routes it cannot deliver, a JSON object
  report      TEXT,                                -- its plugins and sinks as it last reported them, a JSON object
  room        INTEGER NOT NULL,                    -- most events that it may have in flight; 0: it takes no partitions
  session     INTEGER NOT NULL                     -- 1: a session of it holds its lock
) WITHOUT ROWID;

-- Which host reads which partition: its owner, while that host is alive.
CREATE TABLE outbox_event_partition (
  partition_id INTEGER NOT NULL PRIMARY KEY,
  owner        TEXT,
  epoch        INTEGER NOT NULL DEFAULT 0          -- how often it has got another owner; outcomes of an earlier epoch are dropped
) WITHOUT ROWID;
INSERT INTO outbox_event_partition (partition_id)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number FROM numbers;

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
-- The newest first; what was done to one event alone; and what was done to many, any event maybe among them.
CREATE INDEX outbox_event_audit_at ON outbox_event_audit (at);
CREATE INDEX outbox_event_audit_one ON outbox_event_audit (selector, at) WHERE substr(selector, 1, 12) = '{"event_id":';
CREATE INDEX outbox_event_audit_many ON outbox_event_audit (at)
  WHERE action IN ('pause', 'resume', 'replay', 'retry_now') AND substr(selector, 1, 12) <> '{"event_id":';

-- What plugins keep, by key. Written in the transaction of the outcome that it belongs to.
CREATE TABLE outbox_event_state (
  plugin     TEXT    NOT NULL,
  name       TEXT    NOT NULL,                     -- the key
  value      BLOB    NOT NULL,
  version    INTEGER NOT NULL,                     -- larger after every change
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (plugin, name)
);

-- How much each plugin keeps.
CREATE TABLE outbox_event_state_usage (
  plugin     TEXT    NOT NULL PRIMARY KEY,
  used_keys  INTEGER NOT NULL DEFAULT 0,
  used_bytes INTEGER NOT NULL DEFAULT 0,             -- of keys and values together
  revision   INTEGER NOT NULL DEFAULT 0              -- the last version that was given
) WITHOUT ROWID;

-- For people: readable times and payloads.
CREATE VIEW outbox_event_readable AS
SELECT seq, event_id, aggregate_type, event_type, aggregate_id, tenant_id,
       CASE status WHEN 0 THEN 'NEW' WHEN 1 THEN 'DONE' WHEN 2 THEN 'RETRY' WHEN 3 THEN 'DEAD' END AS status,
       attempts, deferrals, claims, starts, replays, parked, behind, blocks, last_error, last_cost, headers, content_type,
       CASE WHEN content_type LIKE 'application/json%' THEN CAST(payload AS TEXT) END AS payload,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1e6, 'unixepoch') AS available_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1e6, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', done_at / 1e6, 'unixepoch') AS done_at,
       locked_by, strftime('%Y-%m-%dT%H:%M:%fZ', lease_end / 1e6, 'unixepoch') AS lease_end
FROM outbox_event;
