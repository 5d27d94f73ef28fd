ALTER TABLE outbox_event_partition DROP COLUMN epoch;
