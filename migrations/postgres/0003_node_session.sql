-- What hosts tell each other of how they work. A host of the version before says none of it, and the defaults are true of it.

ALTER TABLE outbox_event_node
  ADD COLUMN reads   smallint NOT NULL DEFAULT 0,  -- 1: it takes only what its partitions have due, and not whatever is
  ADD COLUMN room    integer  NOT NULL DEFAULT 0,  -- most events that it may have in hand
  ADD COLUMN session smallint NOT NULL DEFAULT 0,  -- 1: a session of it holds its lock
  ADD COLUMN idle    smallint NOT NULL DEFAULT 0;  -- 1: it has next to nothing to do, and takes partitions of busy hosts
