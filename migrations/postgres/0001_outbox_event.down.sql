DROP VIEW outbox_event_readable;
DROP TABLE outbox_event_audit;
DROP TABLE outbox_event_partition;
DROP TABLE outbox_event_node;
DROP TABLE outbox_event_pause;
DROP TABLE outbox_event_route;
DROP TABLE outbox_event;
