SET @outbox_step = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'outbox_event_partition' AND column_name = 'epoch'),
  'ALTER TABLE outbox_event_partition DROP KEY outbox_epoch, DROP COLUMN epoch', 'DO 0');
PREPARE outbox_step FROM @outbox_step;
EXECUTE outbox_step;
DEALLOCATE PREPARE outbox_step;
