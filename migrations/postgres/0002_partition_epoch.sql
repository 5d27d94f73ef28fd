-- What is read of a partition, without a claim on each row, is settled under the partition's epoch: an outcome of what an earlier
-- owner has read is dropped.

-- How often the partition has got another owner.
ALTER TABLE outbox_event_partition ADD COLUMN epoch integer NOT NULL DEFAULT 0;

-- Where there are events, this step may have been taken back and applied again while hosts went on. Epochs then begin above all that
-- there were: the seconds of a clock grow faster than they do.
UPDATE outbox_event_partition SET epoch = greatest(extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00Z')::integer, 1)
WHERE EXISTS (SELECT 1 FROM outbox_event);
