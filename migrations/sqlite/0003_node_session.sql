-- What hosts tell each other of how they work. A host of the version before says none of it, and the defaults are true of it.

-- 1: it takes only what its partitions have due, and not whatever is.
ALTER TABLE outbox_event_node ADD COLUMN reads INTEGER NOT NULL DEFAULT 0;

-- Most events that it may have in hand.
ALTER TABLE outbox_event_node ADD COLUMN room INTEGER NOT NULL DEFAULT 0;

-- 1: a session of it holds its lock.
ALTER TABLE outbox_event_node ADD COLUMN session INTEGER NOT NULL DEFAULT 0;

-- 1: it has next to nothing to do, and takes partitions of busy hosts.
ALTER TABLE outbox_event_node ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;
