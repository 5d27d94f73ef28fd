-- What hosts tell each other of how they work.

-- Most events that it may have in flight.
ALTER TABLE outbox_event_node ADD COLUMN room INTEGER NOT NULL DEFAULT 0;

-- 1: a session of it holds its lock.
ALTER TABLE outbox_event_node ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
