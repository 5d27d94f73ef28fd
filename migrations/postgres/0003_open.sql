-- The one line of all unfinished events, in the order of insertion. Not told by their status: statements that ask for a seq and for
-- that would use this index, where the primary key serves them better.
CREATE INDEX outbox_event_open ON outbox_event (seq) WHERE done_at IS NULL;
