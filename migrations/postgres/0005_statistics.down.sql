ALTER TABLE outbox_event ALTER COLUMN aggregate_id RESET (n_distinct);
