DROP INDEX outbox_event_open;
