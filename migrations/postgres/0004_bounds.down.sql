ALTER TABLE outbox_event
  DROP CONSTRAINT names_have_at_most_1024_bytes, DROP CONSTRAINT reasons_have_at_most_65535_bytes,
  DROP CONSTRAINT what_is_unfinished_is_due_or_waits, DROP CONSTRAINT what_nobody_has_claimed_is_due_once_available,
  DROP CONSTRAINT what_is_held_was_claimed;
