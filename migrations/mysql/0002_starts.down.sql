SET @step = IF((SELECT COUNT(*) FROM information_schema.columns
                WHERE table_schema = DATABASE() AND table_name = 'outbox_event' AND column_name = 'starts') = 1,
               'ALTER TABLE outbox_event DROP COLUMN starts', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
