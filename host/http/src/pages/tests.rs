//! The pages as a browser without scripts gets them: over a real router, in front of a real SQLite store.

mod changes;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use outbox::Outbox;
use outbox::purge::PurgeConfig;
use outbox_event::{DispatchResult, Envelope, Event, EventId, Failure, Status};
use outbox_store::sqlite::{SqliteOptions, SqliteStore};
use outbox_store::{Audit, DeadFilter, Filter};
use tower_service::Service as _;

use crate::{HttpConfig, Role, Token, router};

const EVIL: &str = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>";

/// The pages of a host that gives up every `Order/Paid` and is done with all else.
struct Dashboard {
    outbox: Outbox<SqliteStore>,
    router: Router,
    _directory: tempfile::TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Dashboard {
    async fn with(config: HttpConfig) -> Self {
        Self::purging(config, PurgeConfig { enabled: false, ..PurgeConfig::default() }).await
    }

    async fn purging(config: HttpConfig, purge: PurgeConfig) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let options = SqliteOptions::new(directory.path().join("outbox.db")).create(true);
        let store = SqliteStore::open_with(options).await.expect("opens");
        let outbox = Outbox::single_node(store)
            .migrate(true)
            .purge(purge)
            .listener(("Order", "Paid"), |event: Arc<Event>| async move {
                Err::<DispatchResult, _>(Failure::unrecoverable(format!("the bank said {EVIL} to number {}", event.sequence())))
            })
            .listener(("Order", "Placed"), |_: Arc<Event>| async { Ok(DispatchResult::Done) })
            .start()
            .await
            .expect("starts");
        // Until its first heartbeat is written the pages say that no host is alive.
        let beaten = async {
            while outbox.store().nodes().await.expect("reads").is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), beaten).await.expect("the first heartbeat is written");
        let router = router(&outbox, config).expect("the configuration is valid");
        Self { outbox, router, _directory: directory }
    }

    async fn open() -> Self {
        Self::with(HttpConfig { open: true, ..HttpConfig::default() }).await
    }

    /// Writes this many events of this type, and waits until as many are in the state.
    async fn write(&self, event_type: &str, count: usize, status: Status) -> Vec<EventId> {
        let envelope = |number: usize| {
            Envelope::new(event_type).aggregate("Order", number.to_string()).header("x-evil", EVIL).json(&EVIL).expect("valid")
        };
        let ids = self.outbox.writer().emit((0..count).map(envelope).collect()).await.expect("written");
        let limit = u32::try_from(count).expect("small");
        for _ in 0..600 {
            let filter = Filter { status: Some(status), event_type: Some(event_type.to_owned()), ..Filter::default() };
            if self.outbox.store().list(&filter, limit).await.expect("reads").len() == count {
                return ids;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the events of {event_type} never became {status}");
    }

    /// Runs a statement as the application, in a transaction of its own.
    async fn sql(&self, statement: &'static str) {
        let mut user = self.outbox.begin().await.expect("begins");
        sqlx::query(statement).execute(&mut **user.inner_mut()).await.expect("runs");
        user.commit().await.expect("commits");
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().call(request).await.expect("a router never fails");
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 1 << 22).await.expect("a whole body");
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).expect("text") }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    async fn post(&self, path: &str, form: &str) -> Answer {
        let request = Request::post(path)
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(form.to_owned())).expect("a request")).await
    }

    /// Waits until the overview says this: what it shows may be a second old.
    async fn shows(&self, text: &str) {
        for _ in 0..600 {
            if self.get("/").await.text.contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the overview never said: {text}");
    }

    async fn dead(&self) -> usize {
        self.outbox.store().list(&Filter { status: Some(Status::Dead), ..Filter::default() }, 200).await.expect("reads").len()
    }
}
