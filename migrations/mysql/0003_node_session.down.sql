SET @outbox_step = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'outbox_event_node' AND column_name = 'session'),
  'ALTER TABLE outbox_event_node DROP COLUMN room, DROP COLUMN session', 'DO 0');
PREPARE outbox_step FROM @outbox_step;
EXECUTE outbox_step;
DEALLOCATE PREPARE outbox_step;
