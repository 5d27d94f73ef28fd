-- The outbox, for MySQL (8.0.16 or later) and MariaDB (10.6 or later). Any program may write to it with a plain INSERT inside its
-- own transaction:
--
--   INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload) VALUES ('OrderPlaced', 'Order', '42', '{"total":9.5}');
--
-- event_type and payload are required, everything else has a default. To put a delivery off, set available_at.
-- All times are UTC, whatever the time zone of the session: write UTC_TIMESTAMP(6), never NOW(6).
-- ROW_FORMAT is named: in an older format, which innodb_default_row_format may choose, a row of these columns is too large for a page.
-- Every statement may be repeated, because this database commits each one by itself: a migration that was cut off goes on.

CREATE TABLE IF NOT EXISTS outbox_event (
  -- The order of insertion; never reused. Unsigned, because no CHECK may name an AUTO_INCREMENT column;
  -- hosts deliver events with any number.
  seq            BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  event_id       VARCHAR(36)  NOT NULL DEFAULT (UUID()),
  event_type     VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64)  NOT NULL DEFAULT '__GLOBAL__',
  aggregate_id   VARCHAR(255),                                     -- NULL or '': the event belongs to no aggregate
  tenant_id      VARCHAR(255),
  headers        MEDIUMTEXT,                                       -- a JSON object of strings, or NULL
  content_type   VARCHAR(255) NOT NULL DEFAULT 'application/json',
  payload        LONGBLOB     NOT NULL,                            -- the bytes written are the bytes delivered
  status         TINYINT      NOT NULL DEFAULT 0,                  -- 0 NEW, 1 DONE, 2 RETRY, 3 DEAD
  attempts       INT          NOT NULL DEFAULT 0,                  -- counted failures
  deferrals      INT          NOT NULL DEFAULT 0,                  -- times the listener asked for later, not counted as attempts
  claims         INT          NOT NULL DEFAULT 0,                  -- claims since the last outcome
  starts         INT          NOT NULL DEFAULT 0,                  -- starts alone since then: many mean that it stops its host
  claim_seq      BIGINT       NOT NULL DEFAULT 0,                  -- claims, outcomes and replays in all: under it every outcome is written
  replays        INT          NOT NULL DEFAULT 0,                  -- times it was brought back from DEAD
  occurred_at    DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  created_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  available_at   DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  -- When it is ready; NULL when finished, parked or behind another. A claim leaves it as it is: an index need not be written.
  -- If only its writer has set it, no event waits for this one before that time.
  due_at         DATETIME(6)           DEFAULT (UTC_TIMESTAMP(6)),
  expires_at     DATETIME(6),                                      -- given up, DEAD, if not done by then
  done_at        DATETIME(6),                                      -- when it became DONE or DEAD
  parked         TEXT,                                             -- why a due event waits for something that is not time
  behind         BIGINT UNSIGNED,                                  -- the seq of the earlier event of its aggregate that it waits behind
  blocks         TINYINT      NOT NULL DEFAULT 0,                  -- 1: DEAD, and later events of its aggregate wait for it
  locked_by      VARCHAR(128),
  locked_at      DATETIME(6),
  lease_end      DATETIME(6),                                      -- until when it is held; then it may be claimed again
  last_error     TEXT,
  wait_reason    TEXT,                                             -- why it last waited although it was due; done keeps it
  wait_since     DATETIME(6),                                      -- since when it has been given back without an attempt; done keeps it
  last_cost      TEXT,                                             -- what the last attempt whose cost was stored has cost, as JSON
  -- Which of 256 partitions an event belongs to; one host at a time reads a partition. All events of an aggregate are in the same
  -- partition, events without one are spread.
  partition_id   SMALLINT     GENERATED ALWAYS AS (CRC32(COALESCE(NULLIF(aggregate_id, ''), event_id)) % 256) STORED,
  -- The indexes of this database hold every row. These columns are NULL for the rows that an index is not for, so that those lie
  -- apart and are never read; and they are hashes, so that the entries are small. Whoever looks by them compares the names too.
  key_hash       INT UNSIGNED GENERATED ALWAYS AS (
    CASE WHEN status IN (0, 2) OR blocks = 1 THEN CRC32(CONCAT(aggregate_type, '/', NULLIF(aggregate_id, ''))) END) STORED,
  dead_route     INT UNSIGNED GENERATED ALWAYS AS (
    CASE WHEN status = 3 THEN CRC32(CONCAT(aggregate_type, '/', event_type)) END) STORED,
  parked_route   INT UNSIGNED GENERATED ALWAYS AS (
    CASE WHEN parked IS NOT NULL THEN CRC32(CONCAT(aggregate_type, '/', event_type)) END) STORED,
  PRIMARY KEY (seq),
  UNIQUE KEY outbox_id (event_id),
  KEY outbox_due (due_at, seq),              -- what is due: finished and parked rows have no due_at
  KEY outbox_done (status, done_at),         -- what is old enough to purge
  KEY outbox_dead (dead_route, seq),         -- what is dead, by route
  KEY outbox_parked (parked_route, seq),     -- what is parked, by route
  KEY outbox_behind (behind, seq),           -- what waits behind which event
  -- The mode `ordered_by_aggregate` needs one more index: see `outbox migrate add-index`.
  -- What a plain INSERT must not say: the host could neither read such a row nor ever be done with it.
  -- An UPDATE by a host, which raises claim_seq, does not pay for what only a writer can do.
  CONSTRAINT outbox_event_id_ascii CHECK (claim_seq > 0 OR event_id <> '' AND event_id NOT REGEXP '[^!-~]'),
  -- Where the session's sql_mode allows 0000-00-00 or 2026-11-00.
  CONSTRAINT outbox_event_times_valid CHECK (
    (due_at IS NULL OR TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) IS NOT NULL)
    AND (claim_seq > 0
         OR TIMESTAMPDIFF(MICROSECOND, '1970-01-01', occurred_at) IS NOT NULL
         AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) IS NOT NULL
         AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', available_at) IS NOT NULL
         AND (expires_at IS NULL OR TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) IS NOT NULL))),
  CONSTRAINT outbox_event_claim_seq CHECK (claim_seq BETWEEN 0 AND 4611686018427387903),
  CONSTRAINT outbox_event_due_unfinished CHECK (status IN (0, 2) OR (status IN (1, 3) AND due_at IS NULL)),
  CONSTRAINT outbox_event_held_has_lease CHECK ((locked_by IS NULL) = (lease_end IS NULL)),
  CONSTRAINT outbox_event_due_or_waiting CHECK (
    status NOT IN (0, 2) OR due_at IS NOT NULL OR behind IS NOT NULL OR parked IS NOT NULL),
  CONSTRAINT outbox_event_held_claimed CHECK (claim_seq > 0 OR COALESCE(lease_end <= locked_at, lease_end IS NULL))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Routes that have had a listener: their events are parked, never killed, while it is away.
CREATE TABLE IF NOT EXISTS outbox_event_route (
  aggregate_type VARCHAR(64)  NOT NULL,
  event_type     VARCHAR(128) NOT NULL,
  first_seen_at  DATETIME(6)  NOT NULL,
  only_relayed   SMALLINT     NOT NULL,   -- 1: only relays have answered it, so a relay's pattern may take its events, too
  PRIMARY KEY (aggregate_type, event_type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Routes whose events are parked until somebody resumes them.
CREATE TABLE IF NOT EXISTS outbox_event_pause (
  aggregate_type VARCHAR(64)  NOT NULL,
  event_type     VARCHAR(128) NOT NULL,
  paused_at      DATETIME(6)  NOT NULL,
  paused_by      VARCHAR(200) NOT NULL,
  reason         TEXT,
  PRIMARY KEY (aggregate_type, event_type)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The hosts that work on this table.
CREATE TABLE IF NOT EXISTS outbox_event_node (
  owner       VARCHAR(128) NOT NULL PRIMARY KEY,                   -- what stands in locked_by; another one at every start
  label       VARCHAR(255) NOT NULL,                               -- host name and process number
  mode        VARCHAR(64)  NOT NULL,
  version     VARCHAR(64)  NOT NULL,
  started_at  DATETIME(6)  NOT NULL,
  alive_until DATETIME(6)  NOT NULL,
  stuck       MEDIUMTEXT,                                           -- events that are stuck at it, a JSON list
  listeners   MEDIUMTEXT,                                           -- which it has, and which routes it cannot deliver, a JSON object
  report      MEDIUMTEXT,                                           -- its plugins and sinks as it last reported them, a JSON object
  room        INT          NOT NULL,                               -- most events that it may have in flight; 0: it takes no partitions
  session     SMALLINT     NOT NULL                                -- 1: a session of it holds its lock
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which host reads which partition: its owner, while that host is alive.
CREATE TABLE IF NOT EXISTS outbox_event_partition (
  partition_id SMALLINT     NOT NULL PRIMARY KEY,
  owner        VARCHAR(128),
  epoch        INT          NOT NULL DEFAULT 0,  -- how often it has got another owner; outcomes of an earlier epoch are dropped
  -- An outcome locks the entry of its partition's epoch until the commit, so that no other host takes the partition meanwhile.
  KEY outbox_epoch (partition_id, epoch)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO outbox_event_partition (partition_id)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number FROM numbers WHERE NOT EXISTS (SELECT 1 FROM outbox_event_partition AS there WHERE there.partition_id = number);

-- What was done by hand: who, what, to what, to how many, why.
CREATE TABLE IF NOT EXISTS outbox_event_audit (
  id       BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at       DATETIME(6)  NOT NULL,
  actor    VARCHAR(200) NOT NULL,
  action   VARCHAR(64)  NOT NULL,
  selector MEDIUMTEXT   NOT NULL,                                  -- JSON: an event's id, a route, or a filter
  count    BIGINT       NOT NULL,
  reason   TEXT,
  -- When something was done to many events, any event maybe among them; NULL for everything else, which is never read by it.
  many_at  DATETIME(6)  GENERATED ALWAYS AS (
    CASE WHEN action IN ('pause', 'resume', 'replay', 'retry_now') AND LEFT(selector, 12) <> '{"event_id":' THEN at END) STORED,
  KEY outbox_audit_at (at),                  -- the newest first
  KEY outbox_audit_one (selector(96)),       -- what was done to one event alone: its id may be 36 characters, each escaped
  KEY outbox_audit_many (many_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What plugins keep, by key. Written in the transaction of the outcome that it belongs to. Keys are bytes: no collation may take
-- two of them for one.
CREATE TABLE IF NOT EXISTS outbox_event_state (
  plugin     VARBINARY(64)  NOT NULL,
  name       VARBINARY(255) NOT NULL,                -- the key, in UTF-8
  value      LONGBLOB       NOT NULL,
  version    BIGINT         NOT NULL,                -- larger after every change
  updated_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (plugin, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How much each plugin keeps. Locked by whoever changes the state of that plugin.
CREATE TABLE IF NOT EXISTS outbox_event_state_usage (
  plugin     VARBINARY(64) NOT NULL PRIMARY KEY,
  used_keys  BIGINT        NOT NULL DEFAULT 0,
  used_bytes BIGINT        NOT NULL DEFAULT 0,   -- of keys and values together
  revision   BIGINT        NOT NULL DEFAULT 0    -- the last version that was given
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- For people: names of states, and payloads as text.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW outbox_event_readable AS
SELECT seq, event_id, aggregate_type, event_type, aggregate_id, tenant_id,
       CASE status WHEN 0 THEN 'NEW' WHEN 1 THEN 'DONE' WHEN 2 THEN 'RETRY' WHEN 3 THEN 'DEAD' END AS status,
       attempts, deferrals, claims, starts, replays, parked, behind, blocks, last_error, last_cost, headers, content_type,
       CASE WHEN content_type LIKE 'application/json%' THEN CONVERT(payload USING utf8mb4) END AS payload,
       created_at, available_at, due_at, done_at, locked_by, lease_end
FROM outbox_event;
