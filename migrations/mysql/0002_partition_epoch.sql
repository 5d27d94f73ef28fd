-- What is read of a partition, without a claim on each row, is settled under the partition's epoch: an outcome of what an earlier
-- owner has read is dropped.
-- Statements may be repeated, as in the first step; MySQL cannot add a column only where it is missing, so it is asked first.

-- epoch: how often the partition has got another owner. An outcome locks the index entry of its partition's epoch until the commit,
-- so that no other owner takes the partition meanwhile; who renews a lease writes the row alone, and never waits for outcomes.
SET @outbox_step = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'outbox_event_partition' AND column_name = 'epoch'),
  'DO 0', 'ALTER TABLE outbox_event_partition ADD COLUMN epoch INT NOT NULL DEFAULT 0, ADD KEY outbox_epoch (partition_id, epoch)');
PREPARE outbox_step FROM @outbox_step;
EXECUTE outbox_step;
DEALLOCATE PREPARE outbox_step;

-- Where there are events, this step may have been taken back and applied again while hosts went on. Epochs then begin above all that
-- there were: the seconds of a clock grow faster than they do.
UPDATE outbox_event_partition SET epoch = GREATEST(TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()), 1)
WHERE epoch = 0 AND EXISTS (SELECT 1 FROM outbox_event);
