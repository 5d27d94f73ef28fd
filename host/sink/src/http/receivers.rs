//! The receivers of an endpoint: one for each path.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Semaphore;

use super::HttpConfig;
use crate::breaker::OpenBreakers;
use crate::kind::Kind;
use crate::receiver::{Common, Receiver, UnavailableReceivers};

/// The most receivers that are remembered. Events choose paths, and may choose millions.
const REMEMBERED: usize = 4_096;

/// The receivers of one sink, each known by the hash of its path. Each keeps only the beginning of its path: events may choose long
/// ones.
pub(super) struct Receivers {
    common: Arc<Common>,
    remembered: Mutex<HashMap<u64, Arc<Receiver>>>,
}

impl Receivers {
    pub(super) fn new(sink: &str, config: &HttpConfig) -> Self {
        let common = Common {
            sink: sink.to_owned(),
            shown: config.target(),
            has_others: config.path.is_some(),
            patience: config.timeout / 4,
            // The other half is left to receivers that answer.
            unproven: Arc::new(Semaphore::new((config.max_in_flight / 2).max(1))),
            hasher: RandomState::new(),
            unavailable: UnavailableReceivers::default(),
        };
        Self { common: Arc::new(common), remembered: Mutex::default() }
    }

    /// Whether these are the receivers of these settings, too. The path of the address does not count: it may hold a secret that was
    /// changed.
    pub(super) fn belong_to(&self, config: &HttpConfig) -> bool {
        self.common.shown == config.target() && self.common.has_others == config.path.is_some()
    }

    /// The receiver at this path; an empty one is the sink's own.
    pub(super) fn at(&self, path: &str) -> Arc<Receiver> {
        // The hash has a secret of this process: no event chooses a path that is taken for another one.
        let key = self.common.hasher.hash_one(path);
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED && !remembered.contains_key(&key) {
            forget_half(&mut remembered);
        }
        let receiver =
            remembered.entry(key).or_insert_with(|| Arc::new(Receiver::new(self.common.clone(), path, key, Instant::now())));
        receiver.clone()
    }

    /// The open breakers of the receivers that are remembered, and the outage of the sink while its receivers are unavailable.
    pub(super) fn open_breakers(&self) -> OpenBreakers {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let open = OpenBreakers::of(remembered.values().map(|receiver| (receiver.path(), receiver.breaker())));
        OpenBreakers { outage: self.common.unavailable.outage().or(open.outage), ..open }
    }
}

/// Forgets half of the receivers that have no message now: first those that work, and then those that were not heard of for longest.
fn forget_half(remembered: &mut HashMap<u64, Arc<Receiver>>) {
    let idle = remembered.iter().filter(|(_, receiver)| Arc::strong_count(receiver) == 1);
    let mut idle: Vec<_> = idle.map(|(key, receiver)| (!receiver.works(), receiver.heard_at(), *key)).collect();
    idle.sort_unstable();
    for (_, _, key) in &idle[..idle.len().div_ceil(2)] {
        remembered.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SinkError;

    fn receivers() -> Receivers {
        let config = HttpConfig { path: Some("{aggregate_id}".parse().expect("valid")), ..HttpConfig::default() };
        Receivers::new("hooks", &config)
    }

    fn answer(receivers: &Receivers, path: &str, answer: Result<(), SinkError>) {
        let now = Instant::now();
        let permit = receivers.at(path).admit(path, now).expect("one message may be sent");
        let _ = permit.judge(answer, now);
    }

    #[test]
    fn a_receiver_that_rests_is_an_outage_of_the_sink_only_if_it_is_the_only_one() {
        let rest = |receivers: &Receivers, path: &str| {
            for id in 0..10 {
                let permit = receivers.at(path).admit(&id.to_string(), Instant::now()).expect("it does not rest yet");
                let _ = permit.judge(Err(SinkError::denied("404")), Instant::now());
            }
        };
        let several = receivers();
        rest(&several, "a");
        answer(&several, "b", Ok(()));
        let open = several.open_breakers();
        assert_eq!((open.outage, open.receivers, open.first), (None, 1, vec!["a".to_owned()]));

        let single = Receivers::new("hooks", &HttpConfig::default());
        rest(&single, "");
        let open = single.open_breakers();
        assert_eq!((open.outage.map(|outage| outage.reason), open.receivers), (Some("404".to_owned()), 0));
    }

    #[test]
    fn however_many_paths_events_choose_a_bounded_number_is_remembered() {
        let receivers = receivers();
        let in_use = receivers.at("in use");
        answer(&receivers, "refuses", Err(SinkError::denied("404")));
        for path in 0..5_000 {
            answer(&receivers, &path.to_string(), Ok(()));
            assert!(receivers.remembered.lock().expect("no panic").len() <= REMEMBERED);
        }
        assert!(Arc::ptr_eq(&receivers.at("in use"), &in_use), "its messages in flight still count");
        assert!(!receivers.at("refuses").works(), "those that work are forgotten first");
        for path in 0..3 * REMEMBERED {
            answer(&receivers, &format!("bad {path}"), Err(SinkError::denied("404")));
            assert!(receivers.remembered.lock().expect("no panic").len() <= REMEMBERED);
        }
        assert!(Arc::ptr_eq(&receivers.at("in use"), &in_use));
    }
}
