//! Refused tokens, in the log and in the audit log: a bounded number of lines, however many there are.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbox_store::{Audit, Store};
use serde_json::json;

/// The rest between two lines.
const EVERY: Duration = Duration::from_secs(5 * 60);

/// Where a token was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// In a request to the API.
    Api,
    /// In the log-in form of the pages.
    Form,
}

/// Counts refused tokens and reports them.
pub(crate) struct Refused {
    store: Arc<dyn Store>,
    waiting: Mutex<Waiting>,
}

/// What is to be reported.
#[derive(Debug, Default)]
struct Waiting {
    counted: Counted,
    /// Whether a task is there that reports it.
    has_task: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    by_api: u64,
    by_form: u64,
    /// The address that the last one came from, where it is known.
    last_from: Option<IpAddr>,
}

impl Refused {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, waiting: Mutex::default() })
    }

    /// Counts a refused token. The first is reported at once, those of the next minutes together.
    pub(crate) fn note(self: &Arc<Self>, door: Door, from: Option<IpAddr>) {
        if !self.waiting().add(door, from) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(refused) = weak.upgrade() {
                let Some(counted) = refused.waiting().take() else { return };
                report(&*refused.store, counted).await;
                drop(refused);
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Counts one more; true when a task must be started.
    fn add(&mut self, door: Door, from: Option<IpAddr>) -> bool {
        match door {
            Door::Api => self.counted.by_api += 1,
            Door::Form => self.counted.by_form += 1,
        }
        self.counted.last_from = from;
        !std::mem::replace(&mut self.has_task, true)
    }

    /// What the task reports next; `None` when there is nothing, and the task ends.
    fn take(&mut self) -> Option<Counted> {
        let counted = std::mem::take(&mut self.counted);
        self.has_task = counted != Counted::default();
        self.has_task.then_some(counted)
    }
}

async fn report(store: &dyn Store, counted: Counted) {
    let Counted { by_api, by_form, last_from } = counted;
    let from = last_from.map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
    tracing::warn!(
        target: "outbox::http::access::refused",
        by_api, by_form, last_from = from,
        "tokens were refused: they are unknown or have expired"
    );
    let selector = json!({ "by_api": by_api, "by_form": by_form, "last_from": last_from });
    let noted = store.note(&Audit::by("unknown"), "refused_login", &selector, by_api + by_form).await;
    if let Err(error) = noted {
        tracing::warn!(
            target: "outbox::http::access::refused",
            error = %outbox_event::chain::chain(&error),
            "refused tokens could not be written to the audit log"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_reports_all_that_came_meanwhile_and_ends_when_nothing_came() {
        let mut waiting = Waiting::default();
        let from = Some(IpAddr::from([192, 0, 2, 1]));
        assert!(waiting.add(Door::Api, None), "the first is reported at once");
        assert_eq!(waiting.take(), Some(Counted { by_api: 1, ..Counted::default() }));
        for _ in 0..1_000 {
            assert!(!waiting.add(Door::Api, from), "a task is there");
        }
        assert!(!waiting.add(Door::Form, from));
        assert_eq!(waiting.take(), Some(Counted { by_api: 1_000, by_form: 1, last_from: from }));
        assert_eq!(waiting.take(), None);
        assert!(waiting.add(Door::Form, None), "another task");
    }
}
