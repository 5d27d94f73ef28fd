//! Findings of doctor about row-level policies. They do not apply to the superuser of the tests.

use outbox::store::{DoctorStore, Finding, Severity};
use outbox::{PostgresStore, Store as _};
use support::{Harness, Postgres};

use crate::common::expectations;

async fn finding(store: &PostgresStore) -> Finding {
    let findings = store.diagnose(&expectations()).await.expect("looks");
    findings.into_iter().find(|finding| finding.check == "row_security").expect("was looked at")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_warns_of_the_policies_that_apply_to_its_user() {
    let db = Postgres::fresh().await;
    let (user, url) = db.user("tenant").await;
    let store = PostgresStore::connect(&url).await.expect("connects");
    assert_eq!(finding(&store).await.severity, Severity::Good);

    db.execute("ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY").await;
    let alone = finding(&store).await;
    db.execute(&format!(
        "CREATE POLICY of_one_tenant ON outbox_event TO {user} USING (tenant_id = 'a');
         CREATE POLICY of_a_viewer ON outbox_event FOR SELECT TO pg_monitor USING (true)"
    ))
    .await;
    let restricted = finding(&store).await;

    assert_eq!((alone.severity, restricted.severity), (Severity::Warning, Severity::Warning));
    assert!(alone.found.contains(&user) && alone.found.ends_with("no policy lets it see a row"), "{alone:?}");
    assert!(restricted.found.contains("(policies: of_one_tenant)"), "{restricted:?}");
    let fix = restricted.fix.as_deref().unwrap_or_default();
    assert!(fix.starts_with(&format!("ALTER ROLE {user} BYPASSRLS")), "{fix}");
    assert_eq!(finding(&db.postgres()).await.severity, Severity::Good, "a superuser is exempt");
    db.execute(&format!("ALTER ROLE {user} BYPASSRLS")).await;
    assert_eq!(finding(&store).await.severity, Severity::Good);
    store.close().await;
    db.drop_user(&user).await;
}
