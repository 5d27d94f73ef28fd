//! This host's session, by which others tell that it is gone, and those of others, by which it tells the same of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::OwnerId;
use crate::metrics::Metrics;
use crate::partition::{GONE_AFTER, Partitions};
use crate::recurring::Outage;
use crate::store::{Overview, Session, Store, StoreError};

/// How often a session is proven, and those of others are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How soon the lock is asked for again while the server takes a lost connection of this host to be there still.
const AGAIN: Duration = Duration::from_millis(250);

/// Holds this host's session, and ends the lease of each host whose session is gone.
pub(crate) struct SessionKeeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) owner: OwnerId,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) metrics: Arc<Metrics>,
    /// Passes on [`Overview::routes_digest`]; `None` while no session tells it.
    pub(crate) routes: watch::Sender<Option<String>>,
}

/// Owners whose locks were free, and the instants between which that was asked and answered.
#[derive(Clone)]
struct Seen {
    asked_at: Instant,
    answered_at: Instant,
    free: Vec<String>,
}

impl SessionKeeper {
    /// Keeps the session until this host has left. A look at the others may have to wait for a connection: no proof waits for that.
    pub(crate) async fn run(self, left: watch::Receiver<bool>) {
        let (seen, news) = watch::channel(None);
        tokio::join!(self.keep(left.clone(), seen), self.look_out(left, news));
        self.routes.send_replace(None);
    }

    /// Proves the session every second, and opens one when there is none. Passes on the overview of the session.
    async fn keep(&self, mut left: watch::Receiver<bool>, seen: watch::Sender<Option<Seen>>) {
        let (mut session, mut ever_held, outage) = (None, false, Outage::default());
        loop {
            // Taken before the statement is sent: the lock was held then, or later.
            let asked_at = Instant::now();
            let (had_one, mut rest) = (session.is_some(), EVERY);
            let held = self.hold(&mut session, asked_at).await.inspect_err(|error| self.metrics.db_error(error));
            let held = held.map(|found| self.pass_on(found, asked_at, &seen)).inspect_err(|_| self.tell_of_routes(None));
            self.partitions.session().notify_known();
            ever_held |= session.is_some();
            match held {
                Ok(false) if !ever_held => return,
                // The lock cannot be taken just now, as when the directory of a SQLite file was moved.
                Ok(false) => {}
                held => {
                    if matches!(held, Err(StoreError::Locked { .. })) {
                        rest = AGAIN;
                    }
                    outage.note(
                        held,
                        |error| tracing::warn!(%error, "this host has no session: if it dies, others wait for the end of its lease"),
                        || tracing::info!("this host has a session again"),
                    );
                }
            }
            // One that was lost is opened again at once: others wait for a few seconds only.
            let next = if had_one && session.is_none() { asked_at } else { asked_at + rest };
            tokio::select! {
                _ = left.wait_for(|left| *left) => break,
                () = tokio::time::sleep_until(next) => {}
            }
        }
        if let Some(session) = session {
            session.end().await;
        }
    }

    /// Proves the session, or opens one, and returns its overview. False where there are no sessions.
    async fn hold(
        &self,
        session: &mut Option<Box<dyn Session>>,
        asked_at: Instant,
    ) -> Result<(bool, Option<Overview>), StoreError> {
        let mut overview = None;
        if let Some(held) = session {
            match held.prove_with_overview().await {
                Ok(seen) => overview = seen,
                Err(error) => {
                    *session = None;
                    self.partitions.set_session(None);
                    return Err(error);
                }
            }
        } else {
            *session = self.store.hold_session(&self.owner).await?;
        }
        let Some(_) = session else { return Ok((false, None)) };
        self.partitions.set_session(Some(asked_at));
        Ok((true, overview))
    }

    /// Passes on the overview. Returns whether the session is held.
    fn pass_on(
        &self,
        (is_held, overview): (bool, Option<Overview>),
        asked_at: Instant,
        seen: &watch::Sender<Option<Seen>>,
    ) -> bool {
        let (free, routes) = overview.map(|overview| (overview.free_sessions, overview.routes_digest)).unzip();
        self.tell_of_routes(routes);
        if let Some(free) = free {
            seen.send_replace(Some(Seen { asked_at, answered_at: Instant::now(), free }));
        }
        is_held
    }

    fn tell_of_routes(&self, routes: Option<String>) {
        self.routes.send_if_modified(|before| {
            let is_news = *before != routes;
            *before = routes;
            is_news
        });
    }

    /// Looks every second which other hosts are gone, by the overview of the session where there is one, and when a lock may have
    /// been free for long enough.
    async fn look_out(&self, mut left: watch::Receiver<bool>, mut seen: watch::Receiver<Option<Seen>>) {
        let (mut free, outage, mut rest) = (HashMap::new(), Outage::default(), EVERY);
        loop {
            let told = tokio::select! {
                _ = left.wait_for(|left| *left) => return,
                Ok(()) = seen.changed() => seen.borrow_and_update().clone(),
                () = tokio::time::sleep_until(next_look(&free, Instant::now(), rest)) => None,
            };
            // The overview of a session is late at times.
            rest = if told.is_some() { EVERY * 2 } else { EVERY };
            // Where no session can be held, none can be told to be gone.
            if self.partitions.session().is_held() {
                outage.note(
                    self.look(&mut free, told).await.inspect_err(|error| self.metrics.db_error(error)),
                    |error| tracing::warn!(%error, "this host cannot see which others are gone; trying again"),
                    || tracing::info!("this host sees which others are gone"),
                );
            } else {
                free.clear();
            }
        }
    }

    /// Ends the lease of each owner whose lock has been free for long enough. `free`: since when each has been free, from look to
    /// look.
    async fn look(&self, free: &mut HashMap<String, Instant>, told: Option<Seen>) -> Result<(), StoreError> {
        let before = std::mem::take(free);
        let Seen { asked_at, answered_at, free: gone } = match told {
            Some(seen) => seen,
            None => {
                let asked_at = Instant::now();
                let free = self.store.free_sessions(&self.owner).await?;
                // The locks were found free at some time between the two instants.
                Seen { asked_at, answered_at: Instant::now(), free }
            }
        };
        for owner in gone {
            let since = before.get(&owner).copied().unwrap_or(answered_at);
            if asked_at.saturating_duration_since(since) < GONE_AFTER {
                free.insert(owner, since);
                continue;
            }
            if self.store.abandon(&owner).await? {
                tracing::info!(
                    host = owner,
                    "a host is gone, since the lock of its session is free: what it held is taken over"
                );
                self.partitions.request_beat();
            }
        }
        Ok(())
    }
}

/// When to look at the others again, at the latest after `rest`. `free`: since when the locks of some have been seen free.
fn next_look(free: &HashMap<String, Instant>, now: Instant, rest: Duration) -> Instant {
    // A look that is one second later leaves these partitions without a host for one second more.
    free.values().map(|since| *since + GONE_AFTER).fold(now + rest, Instant::min).max(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_lock_is_looked_at_again_as_soon_as_its_owner_counts_as_gone() {
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        let mut free = HashMap::new();
        assert_eq!(next_look(&free, now, EVERY), now + EVERY);
        free.insert("a".to_owned(), after(20));
        assert_eq!(next_look(&free, now, EVERY), now + EVERY);
        assert_eq!(next_look(&free, after(2_100), EVERY), after(3_020), "and not at 3,100");
        free.insert("b".to_owned(), after(1_000));
        assert_eq!(next_look(&free, after(2_500), EVERY), after(3_020), "the first of them");
        assert_eq!(next_look(&free, after(3_100), EVERY), after(3_100), "at once when the last look failed");
    }
}
