-- Times since the last outcome that an event was started with no other beside it, because two hosts had gone while they held it. Only
-- these are held against it: it was in the hands of many a host that something else stopped.
-- May be repeated, as every step may.
SET @step = IF((SELECT COUNT(*) FROM information_schema.columns
                WHERE table_schema = DATABASE() AND table_name = 'outbox_event' AND column_name = 'starts') = 0,
               'ALTER TABLE outbox_event ADD COLUMN starts INT NOT NULL DEFAULT 0 AFTER claims', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
