DROP VIEW IF EXISTS outbox_event_readable;
DROP TABLE IF EXISTS outbox_event_audit;
DROP TABLE IF EXISTS outbox_event_partition;
DROP TABLE IF EXISTS outbox_event_node;
DROP TABLE IF EXISTS outbox_event_pause;
DROP TABLE IF EXISTS outbox_event_route;
DROP TABLE IF EXISTS outbox_event;
