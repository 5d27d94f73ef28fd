ALTER TABLE outbox_event DROP COLUMN starts;
