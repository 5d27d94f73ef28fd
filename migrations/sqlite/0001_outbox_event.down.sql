DROP VIEW outbox_event_readable;
DROP TABLE outbox_event_route;
DROP TABLE outbox_event;
