-- Hosts read partitions without claiming each row. What a host read of a partition is settled under the partition's epoch, so an
-- outcome of an earlier owner changes nothing.
-- Statements may be repeated, as in the first step; MySQL cannot add a column only where it is missing, so it is asked first.

-- How often the partition has got another owner.
SET @outbox_step = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'outbox_event_partition' AND column_name = 'epoch'),
  'DO 0', 'ALTER TABLE outbox_event_partition ADD COLUMN epoch INT NOT NULL DEFAULT 0');
PREPARE outbox_step FROM @outbox_step;
EXECUTE outbox_step;
DEALLOCATE PREPARE outbox_step;
