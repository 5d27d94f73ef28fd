-- Hosts read partitions without claiming each row. What a host read of a partition is settled under the partition's epoch, so an
-- outcome of an earlier owner changes nothing.

-- How often the partition has got another owner.
ALTER TABLE outbox_event_partition ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
