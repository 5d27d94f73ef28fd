//! The walk of an event, from a transaction to its end, through the public API alone.

mod acceptance;
mod adopted;
mod alone;
mod aside;
mod bulk;
mod busy;
mod by_hand;
mod careful;
mod changes;
mod chaos;
mod claims;
mod common;
mod costs;
mod damaged;
mod dispatch;
mod dropped;
mod effects;
mod excluded;
mod handle;
mod hanging_front;
mod hooks;
mod interceptors;
mod killer;
mod languages;
mod large;
mod lifecycle;
mod lost_answers;
mod metrics;
mod monitoring;
mod order;
mod plain_insert;
mod policies;
mod pool;
mod purge;
mod queues;
mod reading;
mod receipts;
mod refused;
mod refused_claims;
mod rolling;
mod routes;
mod savepoints;
mod settings;
mod silence;
mod slow_commit;
mod slow_outcomes;
mod standby;
mod standby_host;
mod stop;
mod stuck;
mod sweep;
mod telemetry;
mod testing;
mod total_order;
mod trigger_errors;
mod two_databases;
mod typed;
mod undone;
mod wake;
mod writer;

/// One test for each fact, on one database.
macro_rules! walks {
    ($database:ident => $($module:ident::$fact:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $fact() {
            crate::$module::$fact(&support::$database::fresh().await).await;
        })+
    };
}

macro_rules! on_every_database {
    ($($module:ident::$fact:ident),+ $(,)?) => {
        mod mysql { walks! { MySql => $($module::$fact),+ } }
        mod postgres { walks! { Postgres => $($module::$fact),+ } }
        mod sqlite { walks! { Sqlite => $($module::$fact),+ } }
    };
}

on_every_database! {
    acceptance::rollback_leaves_no_row,
    metrics::every_outcome_is_counted_for_its_route_and_every_number_of_the_table_is_shown,
    acceptance::commit_reaches_the_listener_by_the_hot_path_and_ends_done,
    acceptance::overflow_is_picked_up_by_the_poller,
    acceptance::repeated_failure_walks_retry_to_dead_with_the_right_attempts,
    adopted::events_of_an_adopted_transaction_go_straight_to_their_listener_after_its_commit,
    adopted::what_a_savepoint_took_back_in_an_adopted_transaction_is_not_delivered,
    adopted::an_adopted_transaction_that_is_rolled_back_or_dropped_leaves_nothing_behind,
    rolling::an_older_host_kills_no_event_of_a_route_that_only_a_newer_one_answers,
    reading::a_cold_event_is_written_by_nothing_but_its_outcome,
    reading::where_order_is_kept_an_event_is_written_by_nothing_but_its_outcome,
    reading::a_second_host_that_wants_the_table_for_itself_stands_by_and_takes_over,
    reading::hosts_that_share_the_table_read_different_events_and_go_on_for_one_that_leaves,
    reading::few_events_of_quick_aggregates_are_set_aside_in_the_table,
    aside::a_host_that_cannot_reach_a_sink_stands_aside_for_one_that_can,
    aside::a_host_that_cannot_reach_one_topic_stands_aside_for_one_that_can,
    aside::a_host_whose_listener_keeps_breaking_stands_aside,
    aside::no_host_stands_aside_while_none_can_reach_the_sink,
    aside::a_standby_takes_over_from_a_host_that_cannot_deliver,
    reading::what_waits_for_a_worker_does_not_keep_partitions_from_another_host,
    reading::what_an_owner_left_is_claimed_row_by_row,
    claims::a_hot_event_whose_claim_has_ended_is_not_claimed_by_its_own_host,
    refused::an_outcome_that_the_database_refuses_holds_up_no_other_and_is_stored_later,
    refused::a_second_refused_outcome_holds_up_no_other_either,
    refused::an_event_whose_outcome_is_set_back_is_not_delivered_in_a_loop,
    refused::a_row_that_cannot_be_deleted_keeps_no_other_from_being_deleted,
    refused::later_events_of_an_aggregate_wait_behind_a_refused_outcome,
    refused::a_waiting_event_that_cannot_be_unblocked_stops_no_other_aggregate,
    refused_claims::a_claim_that_cannot_be_renewed_ends_no_other,
    refused_claims::many_claims_that_cannot_be_renewed_end_no_other,
    refused_claims::a_claim_that_cannot_be_given_back_keeps_no_other,
    refused_claims::a_claim_that_the_database_refuses_holds_up_no_other,
    refused::a_stop_does_not_wait_for_an_outcome_that_is_refused,
    refused::a_parked_event_that_cannot_be_changed_keeps_neither_other_routes_nor_the_poller_waiting,
    refused::an_error_that_the_table_cannot_keep_is_stored_in_ascii,
    refused::a_failure_is_stored_though_the_counter_is_at_its_end,
    purge::rows_that_the_database_refuses_to_delete_keep_no_other_row,
    purge::a_host_purges_beside_an_older_host_that_does_not,
    purge::undelivered_rows_that_cannot_be_deleted_keep_no_other_row,
    purge::any_undeletable_rows_are_the_only_ones_that_a_purge_leaves,
    changes::the_start_and_the_stop_of_a_host_are_in_the_audit_log,
    changes::an_audit_log_that_cannot_be_written_stops_neither_a_host_nor_its_events,
    changes::a_host_without_a_label_is_named_after_its_machine,
    changes::a_replay_of_many_events_hides_no_swap_of_the_last_hour,
    careful::a_host_claims_as_many_events_as_the_last_owner_can_have_had_in_flight,
    careful::events_behind_those_of_a_slow_listener_are_claimed,
    rolling::a_host_whose_plugin_did_not_load_kills_nothing_that_it_might_have_answered,
    rolling::a_host_without_any_listener_parks_what_is_due,
    rolling::a_route_is_noted_before_its_host_has_started,
    rolling::a_route_that_nobody_ever_answered_still_ends_dead,
    bulk::a_transaction_with_five_thousand_events_leaves_none_to_wait_for_a_lease,
    bulk::room_in_the_hot_queue_is_given_back_by_every_end_of_a_transaction,
    dropped::a_begin_dropped_at_any_await_leaves_no_transaction_open,
    dropped::a_commit_dropped_at_any_await_is_a_commit_or_a_rollback_and_hooks_are_told,
    dropped::events_of_a_write_dropped_at_any_await_are_delivered_if_they_are_committed,
    dropped::events_of_a_write_dropped_at_any_await_are_gone_if_they_are_rolled_back,
    dropped::a_write_of_an_excluded_event_dropped_at_any_await_leaves_no_row,
    dropped::events_of_an_emit_dropped_at_any_await_are_stored_and_delivered_or_neither,
    order::events_of_one_aggregate_are_delivered_in_order_though_some_fail,
    order::two_events_of_one_aggregate_are_never_with_a_listener_at_once,
    order::one_busy_aggregate_does_not_keep_the_others_waiting,
    order::a_dead_event_blocks_its_aggregate_until_it_is_skipped_or_replayed,
    order::a_dead_event_is_passed_by_when_that_is_asked_for,
    order::a_failed_event_is_overtaken_when_that_is_asked_for,
    order::hosts_share_the_aggregates_and_take_over_from_one_that_leaves,
    order::what_waits_for_its_aggregate_does_not_keep_partitions_from_another_host,
    order::in_total_order_one_host_works_and_another_takes_over,
    total_order::events_are_delivered_in_the_order_of_insertion_whatever_their_times_say,
    total_order::a_deferred_event_holds_up_all_later_ones,
    total_order::a_failed_event_is_dead_after_one_attempt_whatever_its_listener_allows,
    total_order::an_event_of_a_paused_route_holds_up_all_later_ones,
    total_order::an_event_that_nobody_answers_holds_up_no_other_once_its_pause_is_over,
    total_order::an_event_whose_listener_is_paused_by_its_breaker_holds_up_all_later_ones,
    total_order::a_delayed_event_holds_up_nobody_and_takes_its_place_when_its_time_comes,
    total_order::order_survives_stops_in_the_middle_of_a_backlog,
    total_order::a_backlog_of_expired_events_is_walked_without_a_poll,
    sweep::a_long_queue_whose_blocker_is_gone_goes_on_to_its_end,
    sweep::events_are_claimed_while_many_others_are_unparked,
    order::what_a_host_set_aside_before_it_died_is_found_by_the_others,
    order::what_waits_behind_others_goes_on_when_order_is_no_longer_asked_for,
    order::a_stop_gives_back_what_waits_in_key_queues,
    order::events_of_a_paused_route_wait_until_it_is_resumed,
    order::a_done_event_leaves_no_row_when_that_is_asked_for,
    slow_commit::events_of_a_commit_that_outlasts_their_leases_are_delivered_once,
    costs::a_failure_has_its_cost_with_it_and_a_success_has_none,
    costs::every_attempt_has_its_cost_with_it_when_that_is_asked_for,
    by_hand::a_host_restores_the_partition_table_and_goes_on_in_every_mode,
    by_hand::a_host_that_cannot_give_partitions_back_is_taken_over,
    by_hand::hosts_in_every_two_modes_lose_nothing_and_deliver_nothing_twice,
    routes::a_pause_of_all_routes_without_a_host_holds_whatever_a_host_finds_at_its_start,
    routes::an_event_waits_for_a_listener_that_comes_within_the_grace_and_is_dead_after_it,
    plain_insert::whatever_a_plain_insert_says_is_refused_by_name_or_delivered,
    by_hand::an_event_that_is_set_back_by_hand_is_delivered_each_time,
    by_hand::an_event_that_is_replayed_at_once_is_delivered_again,
    by_hand::an_outcome_is_not_written_to_another_event_that_has_got_the_same_number,
    by_hand::a_host_goes_on_after_all_tables_were_emptied_in_every_mode,
    by_hand::hosts_deliver_the_next_event_after_a_test_suite_has_emptied_the_tables,
    by_hand::tables_that_are_emptied_again_and_again_beside_busy_hosts_lose_no_later_event,
}

/// Facts about triggers that have a change do nothing, which MySQL does not have.
mod without_effect {
    mod postgres {
        walks! { Postgres =>
            refused::an_outcome_that_changes_nothing_is_not_delivered_in_a_loop,
            purge::a_purge_deletes_all_rows_but_those_that_a_trigger_keeps,
            purge::rows_that_a_deferred_constraint_keeps_keep_no_other_row,
        }
    }
    mod sqlite {
        walks! { Sqlite =>
            refused::an_outcome_that_changes_nothing_is_not_delivered_in_a_loop,
            purge::a_purge_deletes_all_rows_but_those_that_a_trigger_keeps,
        }
    }
}

/// Facts about constraints that are added to a table, which SQLite does not do.
mod constraints {
    mod mysql {
        walks! { MySql => refused::an_outcome_that_a_constraint_refuses_holds_up_no_other }
    }
    mod postgres {
        walks! { Postgres => refused::an_outcome_that_a_constraint_refuses_holds_up_no_other }
    }
}

/// Facts about transactions that are open beside each other, which SQLite does not have.
mod side_by_side {
    mod mysql {
        walks! { MySql => receipts::receipts_dropped_before_their_commits_hold_nobody_up,
        receipts::a_receipt_that_was_dropped_takes_back_nothing_from_the_poller,
        receipts::an_event_that_is_written_again_after_a_rollback_nobody_told_of_is_delivered_once,
        receipts::a_receipt_dropped_before_its_rollback_leaves_nothing_behind,
        receipts::a_hot_copy_never_runs_under_a_lease_that_ended_during_the_insert }
    }
    mod postgres {
        walks! { Postgres => receipts::receipts_dropped_before_their_commits_hold_nobody_up,
        receipts::a_receipt_that_was_dropped_takes_back_nothing_from_the_poller,
        receipts::an_event_that_is_written_again_after_a_rollback_nobody_told_of_is_delivered_once,
        receipts::a_receipt_dropped_before_its_rollback_leaves_nothing_behind,
        receipts::a_hot_copy_never_runs_under_a_lease_that_ended_during_the_insert }
    }
}

/// Facts about damage that a test can do to PostgreSQL alone.
mod damage {
    mod postgres {
        walks! { Postgres => damaged::an_event_whose_payload_cannot_be_returned_holds_up_no_other }
    }
}
