//! The least rights of each part.

/// Everything that is not a bare GRANT names the schema by `current_schema()`, which the first line sets. Only the second block
/// needs the tables: whoever makes them needs the first one before.
pub(super) const GRANTS: &str = "
-- First the roles and their rights to the schema. The roles cannot log in: grant them to the users of your programs, such as
--   GRANT outbox_writer TO shop;
DO $$
DECLARE
  part text;
BEGIN
  IF current_schema() IS NULL THEN
    RAISE EXCEPTION 'there is no schema % here; make it with CREATE SCHEMA', current_setting('search_path');
  END IF;
  FOREACH part IN ARRAY ARRAY['outbox_migrator', 'outbox_writer', 'outbox_dispatcher', 'outbox_viewer'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = part) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', part);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), part);
  END LOOP;
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO outbox_migrator', current_schema());
END
$$;

-- Then the rights to the tables. As long as some are missing this does nothing but say so.
DO $$
DECLARE
  missing text;
BEGIN
  SELECT string_agg(name, ', ') INTO missing
    FROM unnest(ARRAY['outbox_event', 'outbox_event_route', 'outbox_event_pause', 'outbox_event_node', 'outbox_event_partition',
      'outbox_event_state', 'outbox_event_state_usage', 'outbox_event_audit', 'outbox_event_migration',
      'outbox_event_readable']) AS name
    WHERE to_regclass(name) IS NULL;
  IF missing IS NOT NULL THEN
    RAISE NOTICE 'not there yet: %', missing;
    RAISE NOTICE 'run `outbox migrate up` as a user with the role outbox_migrator, then these lines again';
    RETURN;
  END IF;

  -- Changes the schema, as its owner: log in, SET ROLE outbox_migrator, migrate.
  ALTER TABLE outbox_event OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_route OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_pause OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_node OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_partition OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_state OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_state_usage OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_audit OWNER TO outbox_migrator;
  ALTER TABLE outbox_event_migration OWNER TO outbox_migrator;
  ALTER VIEW outbox_event_readable OWNER TO outbox_migrator;

  -- Writes events and reads no payload. It may not set status, claim or lease, so no row that it writes can stop delivery. A plain
  -- INSERT needs the INSERT grant alone; the library also reads seq, event_id and the schema's version. A service that runs a host
  -- in its own process needs outbox_dispatcher instead.
  REVOKE INSERT ON outbox_event FROM outbox_writer;
  GRANT INSERT (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload, occurred_at,
                available_at, due_at, expires_at)
    ON outbox_event TO outbox_writer;
  GRANT SELECT (seq, event_id) ON outbox_event TO outbox_writer;
  GRANT SELECT ON outbox_event_migration TO outbox_writer;

  -- Delivers events: a host.
  GRANT SELECT, INSERT, UPDATE, DELETE
    ON outbox_event, outbox_event_route, outbox_event_pause, outbox_event_node, outbox_event_partition TO outbox_dispatcher;
  GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event_state, outbox_event_state_usage TO outbox_dispatcher;
  GRANT SELECT, INSERT ON outbox_event_audit TO outbox_dispatcher;
  GRANT SELECT ON outbox_event_migration, outbox_event_readable TO outbox_dispatcher;

  -- Looks, and changes nothing.
  GRANT SELECT ON outbox_event, outbox_event_route, outbox_event_pause, outbox_event_node, outbox_event_partition, outbox_event_audit,
    outbox_event_state, outbox_event_state_usage,
    outbox_event_migration, outbox_event_readable TO outbox_viewer;
END
$$;
";
