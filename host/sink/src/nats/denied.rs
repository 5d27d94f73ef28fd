//! Subjects that the server denies to this user. It sends an error for each message, and then does not answer the message.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The most subjects that are remembered: more than there are messages in flight.
const MAX_SUBJECTS: usize = 10_000;

/// The errors of the server for one connection. Source: nats-server, server/client.go.
#[derive(Clone, Debug, Default)]
pub(super) struct Denied(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    denied: Mutex<Subjects>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Subjects {
    /// The subjects that this user may not publish to.
    publish: HashSet<String>,
    /// The one at which the client waits for answers, if this user may not subscribe to it.
    inbox: Option<String>,
}

impl Denied {
    /// Notes the subject of an error such as `Permissions Violation for Publish to "orders.7"`.
    pub(super) fn note(&self, error: &str) {
        let mut denied = self.lock();
        match error.split_once('"') {
            Some(("Permissions Violation for Publish to ", rest)) => {
                if denied.publish.len() >= MAX_SUBJECTS {
                    // A subject that is still denied is noted again with its next message.
                    denied.publish.clear();
                }
                denied.publish.insert(unquoted(rest));
            }
            Some(("Permissions Violation for Subscription to ", rest)) => {
                denied.inbox = rest.split('"').next().map(str::to_owned);
            }
            _ => return,
        }
        drop(denied);
        self.0.changed.notify_waiters();
    }

    /// Forgets that this user may not publish to the subject: it may be granted by now.
    pub(super) fn forget(&self, subject: &str) {
        let mut denied = self.lock();
        if !denied.publish.is_empty() {
            denied.publish.remove(subject);
        }
    }

    /// Waits until the server says that this user may not publish to the subject.
    pub(super) async fn noted(&self, subject: &str) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if self.lock().publish.contains(subject) {
                return;
            }
            changed.await;
        }
    }

    /// The subject at which the client waits for answers, if this user may not subscribe to it.
    pub(super) fn inbox(&self) -> Option<String> {
        self.lock().inbox.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Subjects> {
        self.0.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subject that the server quotes as Go's `%q` does, without the first quotation mark.
fn unquoted(quoted: &str) -> String {
    let subject = quoted.rsplit_once('"').map_or(quoted, |(subject, _)| subject);
    let mut chars = subject.chars();
    let mut unquoted = String::with_capacity(subject.len());
    while let Some(c) = chars.next() {
        unquoted.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    unquoted
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_noted(denied: &Denied, subject: &str) -> bool {
        denied.noted(subject).now_or_never().is_some()
    }

    #[test]
    fn subject_is_denied_until_a_message_for_it_is_sent_again() {
        let denied = Denied::default();
        denied.note("Permissions Violation for Publish to \"orders.7\"");
        denied.note(r#"Permissions Violation for Publish to "orders.1\"x\\y""#);
        denied.note("Maximum Connections Exceeded");
        assert!(is_noted(&denied, "orders.7") && is_noted(&denied, r#"orders.1"x\y"#) && !is_noted(&denied, "orders.8"));

        denied.forget("orders.7");
        assert!(!is_noted(&denied, "orders.7"));
    }

    #[test]
    fn only_a_subscription_denies_the_inbox() {
        let denied = Denied::default();
        denied.note("Permissions Violation for Publish to \"_INBOX.42\"");
        assert_eq!(denied.inbox(), None);
        denied.note("Permissions Violation for Subscription to \"_INBOX.a.*\" using queue \"q\"");
        assert_eq!(denied.inbox(), Some("_INBOX.a.*".to_owned()));
    }

    #[test]
    fn a_bounded_number_of_subjects_is_remembered() {
        let denied = Denied::default();
        (0..2 * MAX_SUBJECTS).for_each(|number| denied.note(&format!("Permissions Violation for Publish to \"{number}\"")));
        assert!(denied.lock().publish.len() <= MAX_SUBJECTS && is_noted(&denied, &(2 * MAX_SUBJECTS - 1).to_string()));
    }
}
