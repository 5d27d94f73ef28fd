//! The least rights of each kind of user.

/// Written for `outbox_event` in the database that is in use when a DBA runs it.
pub(super) const GRANTS: &str = "
-- Run it in the database of the outbox (USE …). Then give a role to an account, and make it active at every login:
--   GRANT outbox_dispatcher TO 'app'@'%';
--   SET DEFAULT ROLE outbox_dispatcher FOR 'app'@'%';     -- MariaDB
--   SET DEFAULT ROLE outbox_dispatcher TO 'app'@'%';      -- MySQL
CREATE ROLE IF NOT EXISTS outbox_migrator, outbox_writer, outbox_dispatcher, outbox_viewer;

-- Makes and changes the tables; only while migrating. `outbox_event%` would reach other tables too, so each is named.
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_route TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_pause TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_node TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_partition TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_state TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_state_usage TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_audit TO outbox_migrator;
GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_event_migration TO outbox_migrator;
GRANT CREATE, CREATE VIEW, DROP, SELECT ON outbox_event_readable TO outbox_migrator;

-- The lines below need the tables. Where they are missing, the first one fails: then run `outbox migrate up` as an account with
-- the role outbox_migrator, and all of these lines again.

-- Writes events inside business transactions; deletes what it wrote in a transaction that is still open, and lets events
-- that it could not hand on itself be claimed by others.
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event TO outbox_writer;
GRANT SELECT ON outbox_event_migration TO outbox_writer;

-- Runs the host: claims, settles, purges.
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event TO outbox_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event_route TO outbox_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event_pause TO outbox_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event_node TO outbox_dispatcher;
GRANT SELECT, UPDATE ON outbox_event_partition TO outbox_dispatcher;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event_state TO outbox_dispatcher;
GRANT SELECT, INSERT, UPDATE ON outbox_event_state_usage TO outbox_dispatcher;
GRANT SELECT, INSERT ON outbox_event_audit TO outbox_dispatcher;
GRANT SELECT ON outbox_event_migration TO outbox_dispatcher;

-- Looks.
GRANT SELECT ON outbox_event TO outbox_viewer;
GRANT SELECT ON outbox_event_readable TO outbox_viewer;
GRANT SELECT ON outbox_event_route TO outbox_viewer;
GRANT SELECT ON outbox_event_pause TO outbox_viewer;
GRANT SELECT ON outbox_event_node TO outbox_viewer;
GRANT SELECT ON outbox_event_partition TO outbox_viewer;
GRANT SELECT ON outbox_event_state TO outbox_viewer;
GRANT SELECT ON outbox_event_state_usage TO outbox_viewer;
GRANT SELECT ON outbox_event_audit TO outbox_viewer;
GRANT SELECT ON outbox_event_migration TO outbox_viewer;
";
