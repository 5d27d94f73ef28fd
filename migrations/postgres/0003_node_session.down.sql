ALTER TABLE outbox_event_node DROP COLUMN room, DROP COLUMN session;
