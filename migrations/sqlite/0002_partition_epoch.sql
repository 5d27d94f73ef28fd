-- What is read of a partition, without a claim on each row, is settled under the partition's epoch: an outcome of what an earlier
-- owner has read is dropped.

-- How often the partition has got another owner.
ALTER TABLE outbox_event_partition ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
