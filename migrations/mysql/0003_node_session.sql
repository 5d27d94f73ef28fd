-- What hosts tell each other of how they work. A host of the version before says none of it, and the defaults are true of it.
-- Statements may be repeated, as in the first step; one ALTER adds all columns or none.

-- reads: 1 if it takes only what its partitions have due, and not whatever is; the word is reserved.
-- room: most events that it may have in hand. session: 1 if a session of it holds its lock. idle: 1 if it has next to nothing to do, and
-- takes partitions of busy hosts.
SET @outbox_step = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = 'outbox_event_node' AND column_name = 'session'),
  'DO 0', 'ALTER TABLE outbox_event_node ADD COLUMN `reads` SMALLINT NOT NULL DEFAULT 0, ADD COLUMN room INT NOT NULL DEFAULT 0, ADD COLUMN session SMALLINT NOT NULL DEFAULT 0, ADD COLUMN idle SMALLINT NOT NULL DEFAULT 0');
PREPARE outbox_step FROM @outbox_step;
EXECUTE outbox_step;
DEALLOCATE PREPARE outbox_step;
