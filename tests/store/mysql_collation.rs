//! MySQL and MariaDB: a table that was converted to another collation.

use support::{Harness, MySql};

use crate::{costs, effects, park, settle, write};

async fn converted() -> MySql {
    let db = MySql::fresh().await;
    db.execute("ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci").await;
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_written_and_settled_in_a_table_of_another_collation() {
    write::a_duplicate_id_is_reported_and_changes_nothing(&converted().await).await;
    settle::done_writes_its_columns(&converted().await).await;
    settle::a_mixed_batch_writes_every_kind(&converted().await).await;
    costs::an_answer_writes_its_cost_where_one_comes_with_it(&converted().await).await;
    effects::an_outcome_its_events_and_its_state_come_together(&converted().await).await;
    park::only_the_named_routes_are_unparked(&converted().await).await;
}
