ALTER TABLE outbox_event_node DROP COLUMN reads, DROP COLUMN room, DROP COLUMN session, DROP COLUMN idle;
