-- What hosts tell each other of how they work.

ALTER TABLE outbox_event_node
  ADD COLUMN room    integer  NOT NULL DEFAULT 0,  -- most events that it may have in flight
  ADD COLUMN session smallint NOT NULL DEFAULT 0;  -- 1: a session of it holds its lock
