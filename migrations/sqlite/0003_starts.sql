-- Times since the last outcome that an event was started with no other beside it, because two hosts had gone while they held it. Only
-- these are held against it: it was in the hands of many a host that something else stopped.
ALTER TABLE outbox_event ADD COLUMN starts INTEGER NOT NULL DEFAULT 0;
