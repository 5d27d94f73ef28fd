//! Topics that rest: their messages are answered at once, so that they take no place from messages of other topics while the client
//! waits for the cluster.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::SinkError;

/// After how long a message of a resting topic is tried again.
pub(super) const REST: Duration = Duration::from_secs(5);
/// How often it is logged that a topic is not confirmed.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// How long a topic counts as resting after its rest, without a message that is tried: longer than the longest rest of an event (a
/// minute). Another host may have its events.
const COUNTED_FOR: Duration = Duration::from_secs(2 * 60);
/// The most topics that are remembered; messages of other topics wait for their answers.
const MOST: usize = 1_000;

/// The resting topics of one cluster. They outlive a link.
#[derive(Debug)]
pub(super) struct ClusterTopics {
    brokers: String,
    topics: Mutex<RestingTopics>,
}

impl ClusterTopics {
    pub(super) fn new(brokers: &str) -> Self {
        Self { brokers: brokers.to_owned(), topics: Mutex::default() }
    }

    /// Whether they are topics of the cluster at these brokers.
    pub(super) fn belong_to(&self, brokers: &str) -> bool {
        self.brokers == brokers
    }

    pub(super) fn topics(&self) -> MutexGuard<'_, RestingTopics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The topics whose last message failed for a reason that concerns the whole topic.
#[derive(Debug, Default)]
pub(super) struct RestingTopics(HashMap<String, Topic>);

#[derive(Debug)]
struct Topic {
    /// When the next message is tried.
    next: Instant,
    logged: Instant,
    /// The answer to its last message.
    error: SinkError,
}

impl RestingTopics {
    /// Lets a message of the topic be tried, or answers it. While one message is tried, the others are answered until the cluster
    /// has decided about it, for at most `patience`.
    pub(super) fn admit(&mut self, topic: &str, patience: Duration, now: Instant) -> Result<(), SinkError> {
        let Some(topic) = self.0.get_mut(topic) else { return Ok(()) };
        let left = topic.next.saturating_duration_since(now);
        if left.is_zero() {
            topic.next = now + patience;
            return Ok(());
        }
        Err(match &topic.error {
            SinkError::Unavailable { reason, .. } => SinkError::unavailable_for(left.min(REST), reason),
            error => error.clone(),
        })
    }

    /// Lets the topic rest. Returns whether that is to be logged.
    pub(super) fn rest(&mut self, topic: &str, error: SinkError, now: Instant) -> bool {
        let next = now + REST;
        if let Some(known) = self.0.get_mut(topic) {
            let is_due = now.saturating_duration_since(known.logged) >= LOGGED_EVERY;
            let logged = if is_due { now } else { known.logged };
            *known = Topic { next, logged, error };
            return is_due;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, topic| now < topic.next + REST);
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.insert(topic.to_owned(), Topic { next, logged: now, error });
        }
        has_room
    }

    /// The topics that rest.
    pub(super) fn names(&self, now: Instant) -> Vec<&str> {
        self.0.iter().filter(|(_, topic)| now < topic.next + COUNTED_FOR).map(|(name, _)| name.as_str()).collect()
    }

    /// Ends the rest of a topic, one of whose messages was confirmed. Returns whether it was resting.
    pub(super) fn wake(&mut self, topic: &str) -> bool {
        !self.0.is_empty() && self.0.remove(topic).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn unconfirmed() -> SinkError {
        SinkError::unavailable_for(REST, "no leader")
    }

    fn left(answer: Result<(), SinkError>) -> Option<Duration> {
        match answer {
            Err(SinkError::Unavailable { retry_after, .. }) => retry_after,
            _ => None,
        }
    }

    #[test]
    fn one_message_of_a_resting_topic_is_tried_at_a_time_until_one_is_confirmed() {
        let (mut topics, start) = (RestingTopics::default(), Instant::now());
        let admit = |topics: &mut RestingTopics, seconds| topics.admit("a", PATIENCE, start + Duration::from_secs(seconds));
        assert_eq!(admit(&mut topics, 0), Ok(()), "nothing is wrong with it");

        assert!(topics.rest("a", unconfirmed(), start), "it is logged");
        assert_eq!(left(admit(&mut topics, 1)), Some(Duration::from_secs(4)));
        assert_eq!(topics.admit("b", PATIENCE, start), Ok(()), "another topic");
        assert_eq!(admit(&mut topics, 5), Ok(()), "one message is tried");
        assert_eq!(left(admit(&mut topics, 6)), Some(REST), "while it is on its way");
        assert!(!topics.rest("a", unconfirmed(), start + Duration::from_secs(14)), "it was logged a short while ago");
        assert!(topics.rest("a", unconfirmed(), start + Duration::from_secs(60)));
        let count = |after| topics.names(start + Duration::from_secs(60) + REST + after).len();
        assert_eq!((count(Duration::ZERO), count(COUNTED_FOR)), (1, 0));
        assert!(topics.wake("a") && !topics.wake("a"));
        assert_eq!(admit(&mut topics, 61), Ok(()));

        let missing = SinkError::closed("missing");
        topics.rest("c", missing.clone(), start);
        assert_eq!(topics.admit("c", PATIENCE, start), Err(missing));
    }

    #[test]
    fn a_thousand_topics_are_remembered_at_most() {
        let (mut topics, start) = (RestingTopics::default(), Instant::now());

        let logged = (0..2 * MOST).filter(|number| topics.rest(&number.to_string(), unconfirmed(), start)).count();

        assert_eq!((logged, topics.0.len()), (MOST, MOST));
        assert!(topics.rest("new", unconfirmed(), start + REST * 2), "topics of long ago make room");
        assert_eq!(topics.0.len(), 1);
    }
}
