ALTER TABLE outbox_event_node DROP COLUMN session;
ALTER TABLE outbox_event_node DROP COLUMN room;
