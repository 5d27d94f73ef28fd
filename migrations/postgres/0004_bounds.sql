-- What a plain INSERT must not say, once more: every host would read such a text, and an event whose names do not fit into the index
-- of dead events could never be given up. A host delivers what has half of this at most.

-- Rows from before this step must still be writable: their texts are cut to what is allowed. Those with too long a route are given
-- up by the host that reads them, which says why. First, since it may take a moment, and nobody has to wait for it.
UPDATE outbox_event
SET event_type = left(event_type, 256), aggregate_type = left(aggregate_type, 256), aggregate_id = left(aggregate_id, 256),
    tenant_id = left(tenant_id, 256), content_type = left(content_type, 256),
    parked = left(parked, 4000), last_error = left(last_error, 4000),
    last_cost = CASE WHEN octet_length(last_cost) <= 65535 THEN last_cost END
WHERE (done_at IS NULL OR status = 3)
  AND (octet_length(event_type) > 1024 OR octet_length(aggregate_type) > 1024 OR octet_length(aggregate_id) > 1024
       OR octet_length(tenant_id) > 1024 OR octet_length(content_type) > 1024
       OR octet_length(parked) > 65535 OR octet_length(last_error) > 65535 OR octet_length(last_cost) > 65535);

-- When nobody has claimed an event or settled it yet, its writer alone has said when it is due. Then nothing keeps it, or events
-- behind it, for ever.
UPDATE outbox_event
SET due_at = CASE WHEN status IN (0, 2) AND behind IS NULL AND parked IS NULL
                  THEN least(coalesce(due_at, available_at), greatest(available_at, least(created_at, clock_timestamp()))) END,
    created_at = least(created_at, clock_timestamp()),
    locked_by = CASE WHEN claim_seq > 0 THEN locked_by END, lease_end = CASE WHEN claim_seq > 0 THEN lease_end END
WHERE done_at IS NULL
  AND ((status IN (0, 2) AND due_at IS NULL AND behind IS NULL AND parked IS NULL)
       OR (claim_seq = 0 AND (due_at > greatest(available_at, created_at) OR lease_end IS NOT NULL
                               OR created_at > clock_timestamp())));

-- A bound that compares with now() stays true once it is true, so a dump can be restored. What a host makes due is due at once, so
-- no host is refused.
-- Not validated: a table may have ten million rows, and those that are finished are not written again.
ALTER TABLE outbox_event
  ADD CONSTRAINT names_have_at_most_1024_bytes CHECK (
    octet_length(event_type) <= 1024 AND octet_length(aggregate_type) <= 1024 AND octet_length(aggregate_id) <= 1024
    AND octet_length(tenant_id) <= 1024 AND octet_length(content_type) <= 1024 AND octet_length(locked_by) <= 1024) NOT VALID,
  ADD CONSTRAINT reasons_have_at_most_65535_bytes CHECK (
    octet_length(parked) <= 65535 AND octet_length(last_error) <= 65535 AND octet_length(last_cost) <= 65535) NOT VALID,
  ADD CONSTRAINT what_is_unfinished_is_due_or_waits CHECK (
    status NOT IN (0, 2) OR due_at IS NOT NULL OR behind IS NOT NULL OR parked IS NOT NULL) NOT VALID,
  ADD CONSTRAINT what_nobody_has_claimed_is_due_once_available CHECK (
    claim_seq > 0 OR due_at <= greatest(available_at, created_at, now())) NOT VALID,
  ADD CONSTRAINT what_is_held_was_claimed CHECK (claim_seq > 0 OR lease_end <= now()) NOT VALID;
