//! What every database must do: one suite, over the `Store` trait alone. A database joins it by one line.

mod addresses;
mod claim;
mod common;
mod concurrency;
mod costs;
mod dead;
mod effects;
mod galera;
mod index;
mod inspect;
mod keys;
mod many_keys;
mod migrate;
mod model;
mod mysql_collation;
mod mysql_numbers;
mod mysql_server;
mod node;
mod park;
mod partition;
mod postgres_bounds;
mod postgres_child_tables;
mod postgres_encoding;
mod postgres_limit;
mod postgres_policies;
mod postgres_server;
mod prepared;
mod purge;
mod read;
mod read_in_order;
mod session;
mod settle;
mod sqlite_clock;
mod sqlite_commit;
mod sqlite_file;
mod standby;
mod state;
mod takeover;
mod write;

/// One test for each fact, on one database.
macro_rules! suite {
    ($database:ident => $($module:ident::$fact:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $fact() {
            crate::$module::$fact(&support::$database::fresh().await).await;
        })+
    };
}

macro_rules! conformance {
    ($($module:ident::$fact:ident),+ $(,)?) => {
        mod mysql { suite! { MySql => $($module::$fact),+ } }
        mod sqlite { suite! { Sqlite => $($module::$fact),+ } }
        mod postgres { suite! { Postgres => $($module::$fact),+ } }
    };
}

conformance! {
    write::rows_are_numbered_in_the_order_of_insertion,
    write::a_duplicate_id_is_reported_and_changes_nothing,
    write::the_same_id_twice_in_one_call_is_inserted_once,
    write::a_batch_of_thousands_keeps_its_order_around_duplicates,
    write::every_field_is_read_back_as_it_was_written,
    write::payload_bytes_are_kept_whatever_they_are,
    write::an_event_with_an_empty_payload_may_be_written_alone,
    write::what_is_not_put_off_is_due_at_once_though_its_writers_clock_is_ahead,
    write::an_event_of_a_writer_whose_clock_is_behind_is_due_at_once_and_held_for_a_whole_lease,
    write::many_large_payloads_in_one_call_do_not_mix,
    write::names_and_headers_with_quotes_are_only_text,
    write::a_batch_that_fails_in_its_last_statement_leaves_nothing_in_the_transaction,
    write::no_rows_are_no_work,
    write::a_plain_insert_with_defaults_is_delivered,
    write::a_plain_insert_of_text_delivers_its_bytes,
    write::a_plain_insert_that_only_sets_available_at_is_not_due_before,
    effects::an_outcome_its_events_and_its_state_come_together,
    effects::effects_come_with_every_kind_of_answer,
    effects::an_outcome_that_is_fenced_off_leaves_nothing_behind,
    effects::two_outcomes_of_one_event_are_told_apart_by_their_fences,
    effects::what_a_listener_read_must_still_be_so,
    effects::a_plugin_keeps_no_more_than_its_quota,
    effects::an_event_that_is_there_already_is_not_emitted_again,
    effects::outcomes_of_many_plugins_go_together_whatever_they_are,
    effects::an_outcome_that_could_not_be_written_leaves_its_event_unlocked,
    state::what_a_plugin_keeps_is_listed_by_key_in_pages_without_the_values,
    state::a_prefix_is_bytes_and_no_pattern,
    state::a_plugin_that_keeps_nothing_is_not_listed,
    state::a_deleted_value_makes_room_and_its_version_is_never_used_again,
    state::deleting_everything_of_a_plugin_touches_no_other_and_its_versions_go_on,
    state::a_call_that_read_what_was_deleted_ends_in_a_conflict,
    state::what_is_deleted_by_hand_is_noted_and_what_was_not_there_is_not,
    state::deletes_beside_settling_calls_leave_the_usage_exact,
    claim::two_owners_never_hold_the_same_event,
    claim::an_expired_lease_can_be_claimed_again,
    claim::a_row_inserted_as_claimed_is_hidden_until_its_lease_ends,
    claim::a_claim_writes_owner_lease_fence_and_counter,
    claim::a_claimed_event_knows_its_attempt_sequence_and_fence,
    claim::a_delayed_event_is_not_due_before_its_time,
    claim::a_release_without_a_delay_keeps_the_place_of_an_event,
    claim::nothing_finished_or_parked_is_claimed,
    claim::an_expired_event_says_so,
    claim::an_unreadable_row_comes_back_as_an_error_beside_the_others,
    claim::a_row_with_an_impossible_counter_does_not_spoil_the_batch,
    claim::the_claims_counter_grows_until_there_is_an_outcome,
    claim::counters_at_their_largest_value_stay_there,
    claim::starts_are_counted_under_the_claim_until_there_is_an_outcome,
    claim::a_start_is_taken_back_by_a_host_that_is_still_there_whoever_holds_the_event,
    claim::renewing_keeps_a_claim_beyond_its_lease,
    claim::only_our_own_live_claims_are_renewed,
    claim::what_nobody_has_locked_is_free_and_what_is_not_there_is_not_locked,
    claim::next_due_tells_how_long_to_rest,
    read::reading_writes_nothing_and_reads_the_same_again,
    read::a_read_without_payloads_returns_the_same_rows,
    read::reads_and_routes_ignore_columns_that_a_user_added,
    read::only_who_holds_a_partition_reads_it,
    read::a_read_goes_on_behind_the_last_event_of_the_one_before,
    read::a_row_larger_than_any_host_reads_comes_back_as_an_error_without_its_bytes,
    read::what_is_in_hand_is_left_out,
    read::a_read_stops_at_its_limits,
    read::headers_count_for_the_byte_limit,
    read::nothing_that_is_not_due_is_read,
    read::an_outcome_of_what_was_read_is_stored_once_and_raises_the_fence,
    read::an_outcome_of_an_earlier_owner_is_dropped,
    read::an_outcome_is_dropped_if_its_number_and_epoch_were_given_to_another_event,
    read::a_lease_that_ended_and_that_nobody_took_over_is_renewed_with_what_was_read,
    read::a_partition_that_was_lost_and_won_again_has_forgotten_what_was_read,
    read::a_partition_that_was_given_back_is_not_abandoned,
    read::what_somebody_holds_under_a_claim_is_not_read_until_that_has_ended,
    read::only_what_is_due_and_free_is_claimed_by_its_number,
    read::what_changed_since_it_was_looked_at_is_not_claimed_by_its_number,
    read::a_retry_that_a_writer_stored_is_read_by_the_owner_of_its_partition,
    read::events_of_busy_routes_are_left_out,
    read::the_next_to_read_is_told_of_own_partitions_and_of_what_is_not_in_hand,
    read_in_order::a_read_in_order_tells_what_each_event_waits_for,
    read_in_order::what_failed_or_has_a_claim_is_waited_for_by_what_is_read,
    read_in_order::what_became_due_late_is_waited_for_though_a_later_one_is_in_hand,
    read_in_order::in_a_long_queue_what_is_read_waits_for_what_is_not_in_hand,
    read_in_order::the_front_of_the_queue_is_read_in_the_order_of_insertion,
    read_in_order::the_front_stops_at_its_limits,
    read_in_order::nothing_is_read_past_an_event_that_cannot_be_delivered,
    read_in_order::a_claim_of_another_stops_the_front_until_it_has_ended,
    read_in_order::only_who_holds_all_partitions_reads_the_front,
    read_in_order::finished_and_delayed_events_do_not_stop_the_queue,
    read_in_order::an_event_that_is_delayed_by_due_at_alone_stops_no_other,
    partition::two_settlers_beside_a_keeper_store_each_outcome_once,
    partition::a_release_that_arrives_late_gives_nothing_back,
    partition::missing_and_surplus_partitions_are_found_and_restored,
    partition::partitions_that_were_deleted_twice_within_a_second_have_no_owner_of_before,
    settle::done_writes_its_columns,
    settle::a_deferred_event_keeps_its_attempt_count,
    settle::a_retry_counts_and_is_due_after_its_delay,
    settle::a_counted_death_counts_the_attempt,
    settle::an_uncounted_death_keeps_the_attempt_count,
    settle::a_parked_event_waits_for_nothing_in_time,
    settle::a_released_event_gives_its_claim_back,
    settle::a_mixed_batch_writes_every_kind,
    settle::outcomes_ignore_columns_that_a_user_added,
    settle::thousands_of_outcomes_are_written_in_one_call,
    settle::an_outcome_of_another_event_with_the_same_number_is_dropped,
    settle::an_outcome_can_be_stored_only_while_its_event_is_held_and_unfinished,
    settle::an_outcome_under_an_old_fence_changes_nothing_and_is_counted,
    settle::an_outcome_after_the_lease_but_before_another_claim_counts,
    settle::done_absorbs_every_later_outcome,
    settle::dead_absorbs_every_later_outcome,
    settle::the_same_outcome_twice_changes_nothing_the_second_time,
    settle::an_outcome_after_a_release_is_dropped,
    settle::an_outcome_of_an_earlier_life_is_dropped_after_a_replay,
    settle::an_outcome_for_a_row_that_is_gone_is_counted,
    settle::an_error_is_cut_to_four_thousand_characters,
    settle::a_delay_beyond_all_time_does_not_break_the_table,
    settle::no_outcomes_are_no_work,
    costs::a_failure_writes_its_cost_or_none_and_an_answer_leaves_what_is_there,
    costs::an_answer_writes_its_cost_where_one_comes_with_it,
    costs::a_cost_that_no_host_wrote_spoils_no_row,
    park::only_the_named_routes_are_unparked,
    park::events_of_the_named_partitions_are_unparked,
    park::what_was_unparked_is_claimed_by_its_number_at_once_and_read_as_claimed,
    park::unparking_goes_in_batches,
    park::parked_routes_are_found_one_after_the_other_each_once,
    park::of_many_routes_those_that_are_known_are_counted_and_those_with_the_most_events,
    park::routes_that_had_a_listener_are_remembered_once,
    park::a_route_is_only_relayed_until_it_has_a_listener_of_its_own,
    inspect::statistics_count_every_state,
    inspect::a_sample_has_the_same_numbers_up_to_its_bound,
    inspect::an_empty_table_has_no_oldest_event,
    inspect::each_cause_has_the_age_of_its_oldest_pending_event,
    inspect::what_its_writer_dated_back_waits_only_since_it_was_written,
    inspect::what_is_due_again_waits_only_since_then,
    inspect::what_is_given_back_has_waited_since_it_was_written,
    inspect::each_filter_narrows_the_list,
    inspect::what_is_parked_or_waits_behind_another_is_listed_alone,
    inspect::what_waits_for_its_time_and_what_a_host_holds_are_listed_alone,
    inspect::pages_follow_each_other_without_gap_or_overlap,
    inspect::a_list_carries_no_payloads,
    inspect::an_unreadable_row_does_not_hide_the_others_from_a_list,
    inspect::a_row_with_columns_that_cannot_be_read_is_listed_with_the_reason,
    inspect::the_reasons_of_waiting_events_are_counted_by_route,
    inspect::an_unknown_id_is_nothing,
    inspect::the_table_is_named_as_a_console_takes_it,
    dead::a_replayed_event_begins_anew_under_a_later_fence,
    dead::only_dead_events_are_replayed_or_discarded,
    dead::dead_events_are_counted_by_filter,
    dead::a_batch_replays_the_oldest_up_to_its_limit,
    dead::two_replays_of_many_at_once_leave_none_dead,
    dead::two_people_who_replay_the_same_events_at_once_are_both_told_the_truth,
    dead::a_dead_event_is_replayed_or_discarded_but_never_both,
    dead::what_died_after_the_cut_off_is_not_replayed,
    dead::a_discarded_event_is_gone,
    dead::an_event_that_the_database_refuses_to_change_keeps_no_other_from_a_replay,
    dead::an_event_whose_change_is_suppressed_is_named_and_keeps_no_other_from_a_replay,
    dead::an_event_whose_count_of_replays_is_at_its_end_can_be_replayed,
    dead::what_is_done_by_hand_is_noted_with_who_and_why,
    dead::audit_records_are_chosen_by_who_what_which_and_when_and_read_page_by_page,
    dead::audit_records_that_may_touch_an_event_are_chosen,
    dead::audit_records_of_a_host_are_found_by_its_name_with_or_without_its_process,
    dead::pages_of_audit_records_lose_none_and_repeat_none_though_all_were_made_at_once,
    dead::a_replay_of_many_is_noted_with_its_filter,
    dead::dead_events_are_found_by_aggregate_attempts_and_time,
    dead::what_waits_for_another_attempt_can_be_retried_now,
    dead::a_retry_of_many_goes_on_where_it_left_off_and_lets_none_go_twice,
    dead::a_retry_in_batches_takes_what_failed_and_what_was_put_off_in_the_order_of_insertion,
    dead::what_its_listener_put_off_can_be_retried_now_and_what_its_writer_put_off_cannot,
    keys::partitions_are_shared_and_never_held_twice,
    keys::partitions_are_taken_over_when_their_lease_ends,
    keys::a_partition_that_is_given_back_is_free_at_once,
    keys::a_single_partition_is_the_lock_of_one_host,
    keys::only_events_of_partitions_that_one_holds_are_read_and_claimed,
    keys::all_events_of_an_aggregate_are_in_one_partition,
    keys::the_head_of_a_queue_is_the_first_that_is_waited_for,
    keys::what_is_claimed_or_failed_is_still_waited_for,
    keys::what_is_finished_or_not_yet_available_is_not_waited_for,
    keys::an_event_behind_another_is_not_due_and_keeps_its_counters,
    keys::blockers_are_listed_in_pages_each_once,
    many_keys::thousands_of_blocked_aggregates_are_looked_at_page_by_page,
    keys::a_queue_goes_on_in_order_when_its_blocker_is_resolved,
    keys::a_replayed_blocker_is_delivered_before_its_queue,
    keys::a_discarded_blocker_lets_its_queue_go,
    keys::nothing_blocks_where_order_is_not_asked_for,
    keys::a_dead_event_without_an_aggregate_blocks_nothing,
    keys::events_with_an_empty_aggregate_id_wait_for_no_other,
    keys::an_event_that_is_finished_waits_for_nobody,
    keys::blocked_aggregates_are_listed_with_their_cause,
    keys::one_waiting_event_without_an_aggregate_does_not_hide_the_others,
    keys::an_erased_event_leaves_no_row,
    node::a_host_is_alive_as_long_as_it_says_so,
    node::a_host_tells_how_it_works_and_each_beat_says_it_anew,
    node::hosts_see_what_the_others_cannot_deliver,
    node::a_host_that_is_about_to_stop_has_no_share_any_more,
    node::a_host_that_has_been_gone_for_a_day_is_not_shown_though_no_other_is_alive,
    node::a_host_that_leaves_takes_nothing_with_it,
    node::a_late_heartbeat_does_not_bring_back_a_host_that_has_left,
    session::a_session_holds_its_lock_until_it_is_dropped,
    session::a_session_that_is_ended_lets_its_lock_go_at_once,
    session::the_lock_of_an_owner_is_held_once_and_locks_of_two_owners_do_not_meet,
    session::live_owners_that_said_that_they_have_a_session_are_missed_with_partitions_or_without,
    session::the_overview_of_a_session_is_what_others_are_told,
    session::partitions_of_an_owner_that_is_gone_are_taken_at_once_and_were_abandoned,
    session::an_owner_that_says_that_it_has_no_session_loses_nothing,
    session::an_owner_that_was_abandoned_and_lives_keeps_what_nobody_has_taken,
    session::rows_that_an_abandoned_owner_claimed_stay_claimed,
    prepared::a_column_that_is_added_under_a_running_host_disturbs_nobody,
    node::a_good_database_has_only_good_findings,
    node::a_missing_schema_and_a_lease_below_the_deadline_are_found,
    node::every_statement_that_must_be_fast_uses_its_index,
    node::pausing_and_resuming_a_route_are_noted_once,
    node::a_forgotten_route_leaves_nothing_but_its_events_and_a_note,
    node::events_with_the_name_of_a_pattern_are_no_route,
    node::routes_are_counted_by_what_their_events_wait_for,
    purge::only_rows_that_are_old_enough_go,
    purge::done_and_dead_have_their_own_retention,
    purge::a_batch_takes_the_oldest_and_no_more_than_its_limit,
    purge::nothing_unfinished_is_ever_purged,
    purge::a_dead_event_that_blocks_its_aggregate_is_kept_and_counted,
    purge::what_was_due_long_ago_and_never_taken_is_purged_as_undelivered,
    purge::what_its_writer_dated_back_is_as_old_as_its_row,
    purge::nothing_is_purged_as_undelivered_while_a_host_is_alive,
    purge::what_a_host_ever_took_or_is_not_due_is_not_undelivered,
    purge::a_batch_begins_at_a_time_and_skips_rows,
    purge::an_undelivered_batch_begins_at_a_time_and_skips_rows,
    migrate::migrating_twice_is_migrating_once,
    index::an_index_is_there_once_it_was_added,
    index::two_programs_may_add_an_index_at_once,
    index::an_index_of_another_table_is_not_taken_for_ours,
    index::without_further_indexes_every_statement_of_a_host_without_order_uses_its_index,
    index::doctor_tells_of_the_index_that_the_mode_needs,
    index::a_search_by_aggregate_finds_the_same_with_and_without_its_index,
    migrate::two_programs_may_migrate_at_once,
    migrate::a_missing_schema_is_named,
    migrate::a_newer_schema_is_refused,
    migrate::emptied_tables_keep_only_live_hosts_with_their_partitions,
    migrate::a_schema_whose_version_was_deleted_by_hand_is_named_and_recovered,
    migrate::tables_of_an_earlier_build_are_not_taken_for_ours_if_their_version_was_deleted,
    migrate::a_table_of_an_earlier_build_is_refused_until_it_is_reset,
    migrate::a_reset_deletes_everything_and_leaves_an_empty_schema,
    migrate::a_table_of_another_program_is_refused_and_left_alone,
    migrate::taking_the_schema_back_leaves_nothing,
    migrate::a_custom_table_lives_beside_the_default_one,
    migrate::the_printed_schema_is_one_that_the_host_accepts,
    concurrency::eight_tasks_finish_two_thousand_events_once_each,
    concurrency::writers_and_claimers_at_once_lose_nothing,
}

/// Facts about triggers that have a change do nothing, which MySQL does not have.
mod without_effect {
    mod postgres {
        suite! { Postgres => purge::rows_that_a_trigger_keeps_remain_and_are_answered }
    }
    mod sqlite {
        suite! { Sqlite => purge::rows_that_a_trigger_keeps_remain_and_are_answered }
    }
}

/// Facts about databases whose sequences are never behind their tables.
mod numbers {
    mod mysql {
        suite! { MySql => migrate::numbers_go_on_behind_rows_that_were_copied_in }
    }
    mod sqlite {
        suite! { Sqlite => migrate::numbers_go_on_behind_rows_that_were_copied_in }
    }
}
