ALTER TABLE outbox_event_node DROP COLUMN idle;
ALTER TABLE outbox_event_node DROP COLUMN session;
ALTER TABLE outbox_event_node DROP COLUMN room;
ALTER TABLE outbox_event_node DROP COLUMN reads;
