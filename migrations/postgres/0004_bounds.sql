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

-- Not validated: a table may have ten million rows, and those that are finished are not written again.
ALTER TABLE outbox_event
  ADD CONSTRAINT names_have_at_most_1024_bytes CHECK (
    octet_length(event_type) <= 1024 AND octet_length(aggregate_type) <= 1024 AND octet_length(aggregate_id) <= 1024
    AND octet_length(tenant_id) <= 1024 AND octet_length(content_type) <= 1024 AND octet_length(locked_by) <= 1024) NOT VALID,
  ADD CONSTRAINT reasons_have_at_most_65535_bytes CHECK (
    octet_length(parked) <= 65535 AND octet_length(last_error) <= 65535 AND octet_length(last_cost) <= 65535) NOT VALID;
