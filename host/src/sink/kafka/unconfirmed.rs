//! The topics that the cluster does not confirm: their messages are refused at once, so that they take no place from those of other
//! topics while librdkafka waits for them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// After how long a message of such a topic is tried again.
pub(super) const REST: Duration = Duration::from_secs(5);
/// How often it is logged that a topic is not confirmed.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// The most topics that are remembered; the messages of others wait for their answers.
const MOST: usize = 1_000;

/// The topics whose messages were not confirmed.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(HashMap<String, Topic>);

#[derive(Debug)]
struct Topic {
    /// When the next message is tried.
    next: Instant,
    logged: Instant,
}

impl Unconfirmed {
    /// Lets a message of the topic be tried, or says how long the topic rests. While one is tried, the others rest until it has its
    /// answer, or for as long as it may wait for it.
    pub(super) fn admit(&mut self, topic: &str, patience: Duration, now: Instant) -> Option<Duration> {
        let topic = self.0.get_mut(topic)?;
        let left = topic.next.saturating_duration_since(now);
        if left.is_zero() {
            topic.next = now + patience;
            return None;
        }
        Some(left.min(REST))
    }

    /// Notes that a message of the topic was not confirmed. True when that is to be logged.
    pub(super) fn note(&mut self, topic: &str, now: Instant) -> bool {
        let next = now + REST;
        if let Some(known) = self.0.get_mut(topic) {
            known.next = next;
            let is_due = now.saturating_duration_since(known.logged) >= LOGGED_EVERY;
            if is_due {
                known.logged = now;
            }
            return is_due;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, topic| now < topic.next + REST);
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.insert(topic.to_owned(), Topic { next, logged: now });
        }
        has_room
    }

    /// Forgets a topic, one of whose messages was confirmed or that is not there. True when messages of it were not confirmed before.
    pub(super) fn forget(&mut self, topic: &str) -> bool {
        !self.0.is_empty() && self.0.remove(topic).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn of_a_topic_that_is_not_confirmed_one_message_is_tried_at_a_time_until_one_is_confirmed() {
        let (mut topics, start) = (Unconfirmed::default(), Instant::now());
        let admit = |topics: &mut Unconfirmed, seconds| topics.admit("a", PATIENCE, start + Duration::from_secs(seconds));
        assert_eq!(admit(&mut topics, 0), None, "nothing is wrong with it");

        assert!(topics.note("a", start), "it is logged");
        assert_eq!(admit(&mut topics, 1), Some(Duration::from_secs(4)));
        assert_eq!(topics.admit("b", PATIENCE, start), None, "another topic");
        assert_eq!(admit(&mut topics, 5), None, "one message is tried");
        assert_eq!(admit(&mut topics, 6), Some(REST), "while it is on its way");
        assert!(!topics.note("a", start + Duration::from_secs(14)), "it was logged a short while ago");
        assert!(topics.note("a", start + Duration::from_secs(60)));
        assert!(topics.forget("a") && !topics.forget("a"));
        assert_eq!(admit(&mut topics, 61), None);
    }

    #[test]
    fn no_more_than_so_many_topics_are_remembered() {
        let (mut topics, start) = (Unconfirmed::default(), Instant::now());

        let logged = (0..2 * MOST).filter(|number| topics.note(&number.to_string(), start)).count();

        assert_eq!((logged, topics.0.len()), (MOST, MOST));
        assert!(topics.note("new", start + REST * 2), "those of long ago make room");
        assert_eq!(topics.0.len(), 1);
    }
}
