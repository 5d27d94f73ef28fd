-- What hosts tell each other of how they work.
-- Statements may be repeated, as in the first step; one ALTER adds all columns or none.

-- room: most events that it may have in flight. session: 1 if a session of it holds its lock.
SET @outbox_step = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'outbox_event_node' AND column_name = 'session'),
  'DO 0', 'ALTER TABLE outbox_event_node ADD COLUMN room INT NOT NULL DEFAULT 0, ADD COLUMN session SMALLINT NOT NULL DEFAULT 0');
PREPARE outbox_step FROM @outbox_step;
EXECUTE outbox_step;
DEALLOCATE PREPARE outbox_step;
