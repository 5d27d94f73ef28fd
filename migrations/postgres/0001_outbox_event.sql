-- The outbox. Any program may write to it with a plain INSERT inside its own transaction:
--
--   INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
--   VALUES ('OrderPlaced', 'Order', '42', convert_to('{"total":9.5}', 'UTF8'));
--
-- event_type and payload are required, everything else has a default. To put a delivery off, set available_at. The payload is
-- bytes: convert_to gives those of a text; a bare literal would have its backslashes read as escapes.

CREATE TABLE outbox_event (
  seq            bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order of insertion; never reused
  event_id       varchar(36)  COLLATE "C" NOT NULL UNIQUE DEFAULT gen_random_uuid()::text,
  event_type     varchar(255) COLLATE "C" NOT NULL,
  aggregate_type varchar(255) COLLATE "C" NOT NULL DEFAULT '__GLOBAL__',
  aggregate_id   varchar(255) COLLATE "C",               -- NULL or '': the event belongs to no aggregate
  tenant_id      varchar(255) COLLATE "C",
  headers        text         COLLATE "C",               -- a JSON object of strings, or NULL
  content_type   varchar(255) COLLATE "C" NOT NULL DEFAULT 'application/json',
  payload        bytea        NOT NULL,                  -- the bytes written are the bytes delivered
  status         smallint     NOT NULL DEFAULT 0,        -- 0 NEW, 1 DONE, 2 RETRY, 3 DEAD
  attempts       integer      NOT NULL DEFAULT 0,        -- counted failures
  deferrals      integer      NOT NULL DEFAULT 0,        -- times the listener asked for later, not counted as attempts
  claims         integer      NOT NULL DEFAULT 0,        -- claims since the last outcome
  starts         integer      NOT NULL DEFAULT 0,        -- starts alone since then: many of them mean that it stops its host
  claim_seq      bigint       NOT NULL DEFAULT 0,        -- claims, outcomes and replays in all: under it every outcome is written
  replays        integer      NOT NULL DEFAULT 0,        -- times it was brought back from DEAD
  occurred_at    timestamptz  NOT NULL DEFAULT now(),
  created_at     timestamptz  NOT NULL DEFAULT clock_timestamp(),
  available_at   timestamptz  NOT NULL DEFAULT now(),
  -- When it is ready; NULL when finished, parked or behind another. A claim leaves it as it is: an index need not be written.
  due_at         timestamptz           DEFAULT now(),
  expires_at     timestamptz,                           -- given up, DEAD, if not done by then
  done_at        timestamptz,                           -- when it became DONE or DEAD
  parked         text,                                  -- why a due event waits for something that is not time
  -- The seq of the earlier event of its aggregate that an event waits behind; it has no due_at then.
  behind         bigint,
  -- 1: DEAD, and later events of its aggregate wait until it is replayed, skipped or discarded.
  blocks         smallint     NOT NULL DEFAULT 0,
  locked_by      varchar(255) COLLATE "C",
  locked_at      timestamptz,
  lease_end      timestamptz,                           -- until when it is held; then it may be claimed again
  last_error     text,
  wait_reason    text,                                  -- why it last waited although it was due; done keeps it
  wait_since     timestamptz,                           -- since when it has been given back without an attempt; done keeps it
  last_cost      text,                                  -- what the last attempt whose cost was stored has cost, as JSON
  -- Which of 256 partitions an event belongs to; one host at a time reads a partition. All events of an aggregate are in the
  -- same partition, events without one are spread.
  partition_id   smallint     NOT NULL GENERATED ALWAYS AS
                   ((hashtextextended(coalesce(nullif(aggregate_id, ''), event_id), 0) & 255)::smallint) STORED,
  -- What a plain INSERT must not say: the host could neither read such a row nor ever be done with it.
  CONSTRAINT seq_is_positive CHECK (seq > 0),
  -- Only its writer sets the id: an UPDATE by a host, which raises claim_seq, does not pay for the pattern.
  CONSTRAINT event_id_has_only_visible_ascii_characters CHECK (claim_seq > 0 OR event_id ~ '^[!-~]+$'),
  -- One text that cannot be converted to UTF-8 makes a whole read fail. Checked at the INSERT alone, as above.
  CONSTRAINT text_can_be_converted_to_utf8 CHECK (
    claim_seq > 0 OR getdatabaseencoding() = 'UTF8'
    OR convert_to(concat_ws(' ', event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, parked, locked_by,
                            last_error, wait_reason, last_cost), 'UTF8') IS NOT NULL),
  CONSTRAINT claim_seq_is_below_2_to_the_62 CHECK (claim_seq BETWEEN 0 AND 4611686018427387903),
  CONSTRAINT only_unfinished_events_are_due CHECK (status IN (0, 2) OR (status IN (1, 3) AND due_at IS NULL)),
  CONSTRAINT what_is_held_has_a_lease CHECK ((locked_by IS NULL) = (lease_end IS NULL)),
  -- Every host would read such a text. Names are bounded by their types: an UPDATE of other columns does not check these again. Names
  -- of this length fit into every index.
  CONSTRAINT reasons_have_at_most_65535_bytes CHECK (
    octet_length(parked) <= 65535 AND octet_length(last_error) <= 65535 AND octet_length(last_cost) <= 65535
    AND octet_length(wait_reason) <= 65535),
  -- Until an event is claimed or settled, its writer alone says when it is due. No such event blocks itself, or events behind it, for
  -- ever. A bound that compares with now() stays true once it is true, so a dump can be restored.
  CONSTRAINT what_is_unfinished_is_due_or_waits CHECK (
    status NOT IN (0, 2) OR due_at IS NOT NULL OR behind IS NOT NULL OR parked IS NOT NULL),
  CONSTRAINT what_nobody_has_claimed_is_due_once_available CHECK (
    claim_seq > 0 OR due_at <= greatest(available_at, created_at, now())),
  CONSTRAINT what_is_held_was_claimed CHECK (claim_seq > 0 OR lease_end <= now())
) WITH (
  -- Every event is updated twice soon after it was inserted. A claim changes no column of an index: with room for a second
  -- version of every row in its page, it writes no index at all.
  fillfactor = 50,
  -- Dead row versions are what slows a queue down: they are cleaned by number, not by the share of a table that may be large.
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_insert_scale_factor = 0,
  autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);

-- If one aggregate has most of the rows, such as a million that wait behind a dead event, the planner expects that each row belongs to
-- the aggregate that it looks for, and walks that million by seq to find the earlier events of another. This tells it that an aggregate
-- has few rows.
ALTER TABLE outbox_event ALTER COLUMN aggregate_id SET (n_distinct = -0.1);

-- What is due. Finished and parked rows have no due_at, so they cost the claim nothing.
CREATE INDEX outbox_event_due ON outbox_event (due_at, seq) WHERE due_at IS NOT NULL;
-- What is old enough to purge.
CREATE INDEX outbox_event_done ON outbox_event (status, done_at) WHERE done_at IS NOT NULL;
-- What is dead, by route.
CREATE INDEX outbox_event_dead ON outbox_event (aggregate_type, event_type, seq) WHERE status = 3;
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
  aggregate_type text        COLLATE "C" NOT NULL,
  event_type     text        COLLATE "C" NOT NULL,
  first_seen_at  timestamptz NOT NULL,
  only_relayed   smallint    NOT NULL,   -- 1: only relays have answered it, so a relay's pattern may take its events, too
  PRIMARY KEY (aggregate_type, event_type)
);

-- Routes whose events are parked until somebody resumes them.
CREATE TABLE outbox_event_pause (
  aggregate_type text        COLLATE "C" NOT NULL,
  event_type     text        COLLATE "C" NOT NULL,
  paused_at      timestamptz NOT NULL,
  paused_by      text        NOT NULL,
  reason         text,
  PRIMARY KEY (aggregate_type, event_type)
);

-- The hosts that work on this table.
CREATE TABLE outbox_event_node (
  owner       text        COLLATE "C" NOT NULL PRIMARY KEY,  -- what stands in locked_by; another one at every start
  label       text        NOT NULL,                          -- host name and process number
  mode        text        COLLATE "C" NOT NULL,
  version     text        NOT NULL,
  started_at  timestamptz NOT NULL,
  alive_until timestamptz NOT NULL,
  stuck       text,                                          -- events that are stuck at it, a JSON list
  listeners   text,                                          -- which it has, and which routes it cannot deliver, a JSON object
  report      text,                                          -- its plugins and sinks as it last reported them, a JSON object
  room        integer     NOT NULL,                          -- most events that it may have in flight; 0: it takes no partitions
  session     smallint    NOT NULL                           -- 1: a session of it holds its lock
);

-- Which host reads which partition: its owner, while that host is alive.
CREATE TABLE outbox_event_partition (
  partition_id smallint    NOT NULL PRIMARY KEY,
  owner        text        COLLATE "C",
  epoch        integer     NOT NULL DEFAULT 0   -- how often it has got another owner; outcomes of an earlier epoch are dropped
);
INSERT INTO outbox_event_partition (partition_id) SELECT number FROM generate_series(0, 255) AS number;

-- What was done by hand: who, what, to what, to how many, why.
CREATE TABLE outbox_event_audit (
  id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL,
  actor    text        NOT NULL,
  action   text        NOT NULL,
  selector text        NOT NULL,                       -- JSON: an event's id, a route, or a filter
  count    bigint      NOT NULL,
  reason   text
);
-- The newest first; what was done to one event alone; and what was done to many, any event maybe among them.
CREATE INDEX outbox_event_audit_at ON outbox_event_audit (at, id);
CREATE INDEX outbox_event_audit_one ON outbox_event_audit (selector, at, id) WHERE left(selector, 12) = '{"event_id":';
CREATE INDEX outbox_event_audit_many ON outbox_event_audit (at, id)
  WHERE action IN ('pause', 'resume', 'replay', 'retry_now') AND left(selector, 12) <> '{"event_id":';

-- What plugins keep, by key. Written in the transaction of the outcome that it belongs to.
CREATE TABLE outbox_event_state (
  plugin     text        COLLATE "C" NOT NULL,
  name       text        COLLATE "C" NOT NULL,         -- the key
  value      bytea       NOT NULL,
  version    bigint      NOT NULL,                     -- larger after every change
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (plugin, name)
);

-- How much each plugin keeps. Locked by whoever changes the state of that plugin.
CREATE TABLE outbox_event_state_usage (
  plugin     text   COLLATE "C" NOT NULL PRIMARY KEY,
  used_keys  bigint NOT NULL DEFAULT 0,
  used_bytes bigint NOT NULL DEFAULT 0,                  -- of keys and values together
  revision   bigint NOT NULL DEFAULT 0                   -- the last version that was given
) WITH (fillfactor = 50);

-- For people: readable states and payloads. Bytes beyond ASCII are shown escaped, since not every payload is valid text.
CREATE VIEW outbox_event_readable AS
SELECT seq, event_id, aggregate_type, event_type, aggregate_id, tenant_id,
       CASE status WHEN 0 THEN 'NEW' WHEN 1 THEN 'DONE' WHEN 2 THEN 'RETRY' WHEN 3 THEN 'DEAD' END AS status,
       attempts, deferrals, claims, starts, replays, parked, behind, blocks, last_error, last_cost, headers, content_type,
       CASE WHEN content_type LIKE 'application/json%' THEN encode(payload, 'escape') END AS payload,
       created_at, available_at, due_at, done_at, locked_by, lease_end
FROM outbox_event;
