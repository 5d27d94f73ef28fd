-- The one line of all unfinished events, in the order of insertion.
CREATE INDEX outbox_event_open ON outbox_event (seq) WHERE done_at IS NULL;
