-- Where one aggregate has most of the rows, such as a million that wait behind a dead event, the planner would expect any row to be
-- of the aggregate that it looks for, and walk by seq through that million for the earlier events of another. So it is told that an
-- aggregate has few rows of many, however many the largest one has.
ALTER TABLE outbox_event ALTER COLUMN aggregate_id SET (n_distinct = -0.1);
-- The setting counts from the next analysis on.
ANALYZE outbox_event (aggregate_id);
