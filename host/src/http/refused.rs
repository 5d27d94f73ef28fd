//! Tokens that were refused: told to the log and to the audit, however many there are, in a bounded number of lines.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::host::Host;
use crate::store::Audit;

/// The rest between two lines.
const EVERY: Duration = Duration::from_secs(5 * 60);

/// Where a token was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// In a request to the API.
    Api,
    /// In the form of the pages.
    Form,
}

/// What was refused since it was last told.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    now: Counted,
    /// Whether a task tells of them.
    is_told: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    by_api: u64,
    by_form: u64,
    /// From where the last one came, where the server knows.
    last_from: Option<IpAddr>,
}

impl Refused {
    /// One more; true when a task must begin to tell.
    fn add(&self, door: Door, from: Option<IpAddr>) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match door {
            Door::Api => kept.now.by_api += 1,
            Door::Form => kept.now.by_form += 1,
        }
        kept.now.last_from = from;
        !std::mem::replace(&mut kept.is_told, true)
    }

    /// What is to be told; `None` when there is nothing, and the task ends.
    fn take(&self) -> Option<Counted> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = std::mem::take(&mut kept.now);
        kept.is_told = counted != Counted::default();
        kept.is_told.then_some(counted)
    }
}

/// Notes that a token was refused. The first is told at once, those of the next minutes together.
pub(super) fn note(host: &Host, door: Door, from: Option<IpAddr>) {
    if !host.refused.add(door, from) {
        return;
    }
    let weak = Arc::downgrade(host.parts());
    tokio::spawn(async move {
        while let Some(host) = weak.upgrade() {
            let Some(counted) = host.refused.take() else { return };
            tell(&host.store, counted).await;
            drop(host);
            tokio::time::sleep(EVERY).await;
        }
    });
}

async fn tell(store: &Arc<dyn crate::store::Store>, counted: Counted) {
    let Counted { by_api, by_form, last_from } = counted;
    let from = last_from.map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
    tracing::warn!(by_api, by_form, last_from = from, "tokens were refused: they are unknown or have expired");
    let selector = json!({ "by_api": by_api, "by_form": by_form, "last_from": last_from });
    let noted = store.note(&Audit::by("unknown"), "refused_login", &selector, by_api + by_form).await;
    if let Err(error) = noted {
        tracing::warn!(error = %crate::chain(&error), "the audit could not be told of refused tokens");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_tells_of_all_that_came_meanwhile_and_ends_when_nothing_came() {
        let refused = Refused::default();
        let from = Some(IpAddr::from([192, 0, 2, 1]));
        assert!(refused.add(Door::Api, None), "the first is told at once");
        assert_eq!(refused.take(), Some(Counted { by_api: 1, ..Counted::default() }));
        for _ in 0..1_000 {
            assert!(!refused.add(Door::Api, from), "a task tells already");
        }
        assert!(!refused.add(Door::Form, from));
        assert_eq!(refused.take(), Some(Counted { by_api: 1_000, by_form: 1, last_from: from }));
        assert_eq!(refused.take(), None);
        assert!(refused.add(Door::Form, None), "another task");
    }
}
