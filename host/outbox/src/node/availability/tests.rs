use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::store::ListenerReport;
use crate::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);
/// How long after the last a beat comes.
const BEAT: Duration = Duration::from_secs(3);
/// The longest lease whose end fits into the first rest.
const LEASE: Duration = Duration::from_secs(8);
const DIGEST: &str = "0123456789abcdef";

fn route(name: &str) -> StalledRoute {
    StalledRoute::new(name.to_owned(), "the sink orders".to_owned(), "refused".to_owned(), Timestamp::from_micros(0))
}

fn peer(room: u32, stalled: &[&str]) -> Peer {
    let listeners = ListenerReport::new(DIGEST.to_owned(), stalled.iter().map(|name| route(name)));
    Peer::new("another host".to_owned(), room, listeners)
}

fn other(stalled: &[&str]) -> Peer {
    peer(9, stalled)
}

/// A host, the time, and what its row says.
struct Host {
    availability: Availability,
    now: Instant,
    reported: Vec<StalledRoute>,
}

impl Host {
    fn new() -> Self {
        Self { availability: Availability::new(LEASE), now: Instant::now(), reported: Vec::new() }
    }

    /// A beat three seconds later, with events of these routes given back until now.
    fn beat(&mut self, stalled: &[&str], peers: &[Peer]) -> Option<Change> {
        let now = self.now + BEAT;
        self.beat_with(&stalled.iter().map(|name| (*name, now)).collect::<Vec<_>>(), Some(peers))
    }

    /// The same, with the time at which the last event of each route was given back.
    fn beat_with(&mut self, stalled: &[(&str, Instant)], peers: Option<&[Peer]>) -> Option<Change> {
        self.beat_beside(stalled, &peers.map_or(Peers::Unknown, |peers| Peers::Read(peers.to_vec())))
    }

    fn beat_beside(&mut self, stalled: &[(&str, Instant)], peers: &Peers) -> Option<Change> {
        self.now += BEAT;
        let stalls: Vec<LocalStall> =
            stalled.iter().map(|(name, last)| LocalStall { route: route(name), last: *last }).collect();
        let change = self.availability.decide(self.now, &stalls, &self.reported, DIGEST, peers);
        self.reported = self.availability.reported(&stalls);
        change
    }

    /// One that stands aside for `Order/*`.
    fn aside() -> Self {
        let mut host = Self::new();
        host.beat(&["Order/*"], &[other(&[])]);
        assert_eq!(host.beat(&["Order/*"], &[other(&[])]), Some(aside_for(FIRST_REST)));
        host
    }

    /// Beats until a rest is over. Meanwhile no event of `Order/*` is answered or given back.
    fn rest(&mut self, rest: Duration) {
        let old = [("Order/*", self.now)];
        self.now += rest - 2 * BEAT;
        assert_eq!(self.beat_with(&old, Some(&[other(&[])])), None, "it rests");
        assert_eq!(self.beat_with(&old, Some(&[other(&[])])), Some(Change::Back));
    }

    fn row(&self) -> Peer {
        let listeners = ListenerReport::new(DIGEST.to_owned(), self.reported.iter().cloned());
        Peer::new("another host".to_owned(), u32::from(!self.availability.is_aside()), listeners)
    }
}

fn aside_for(rest: Duration) -> Change {
    Change::Aside { other: "another host".to_owned(), rest }
}

#[test]
fn a_host_stands_aside_for_one_that_can_deliver_and_not_before_its_row_says_why() {
    let mut host = Host::new();
    assert_eq!(host.beat(&[], &[other(&[])]), None);
    assert_eq!(host.beat(&["Order/*"], &[other(&[])]), None, "the others could not yet report the same");
    assert_eq!(host.reported, [route("Order/*")]);
    assert_eq!(host.beat(&["Order/*"], &[other(&[])]), Some(aside_for(FIRST_REST)));
    assert!(host.availability.is_aside());
    assert_eq!(host.reported, [route("Order/*")], "its row says so as long as it stands aside");
}

#[test]
fn no_host_stands_aside_for_one_that_cannot_deliver_more() {
    let names: Vec<String> = (0..StalledRoute::NAMED).map(|number| format!("User/{number}")).collect();
    let full = other(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let elsewhere = Peer::new("another host".to_owned(), 9, ListenerReport::new("other listeners".to_owned(), []));
    let alone: &[&[Peer]] = &[
        &[],
        &[other(&["Order/*"])],
        &[other(&["User/*"])],
        &[other(&["Order/*", "User/*"])],
        &[other(&[""])],
        &[peer(0, &[])],
        &[full],
        &[elsewhere],
    ];
    for peers in alone {
        let mut host = Host::new();
        for _ in 0..9 {
            assert_eq!(host.beat(&["Order/*"], peers), None, "{peers:?}");
        }
    }
    for (own, other_one) in [(&["Order/*", "User/*"][..], &["Order/*"][..]), (&[""], &["Order/*", "User/*"])] {
        let mut host = Host::new();
        host.beat(own, &[other(other_one)]);
        assert!(host.beat(own, &[other(other_one)]).is_some(), "{own:?} beside {other_one:?}");
    }
}

#[test]
fn a_host_comes_back_as_soon_as_no_other_can_deliver_more() {
    for peers in [vec![], vec![other(&["Order/*"])], vec![peer(0, &["Order/*"])]] {
        let mut host = Host::aside();
        assert_eq!(host.beat(&[], &peers), Some(Change::Back), "{peers:?}");
        for _ in 0..9 {
            assert_eq!(host.beat(&["Order/*"], &peers), None, "{peers:?}");
        }
    }
}

#[test]
fn a_host_that_cannot_see_the_others_comes_back_after_its_rest() {
    let mut host = Host::aside();
    assert_eq!(host.beat_with(&[], None), None);
    host.now += FIRST_REST;
    assert_eq!(host.beat_with(&[], None), Some(Change::Back));
    assert_eq!(host.beat_with(&[("Order/*", host.now + BEAT)], None), None, "and does not stand aside without another host");
}

/// A standby answers all reads of the host, so that it learns only how many others work.
#[test]
fn a_host_that_can_deliver_nothing_stands_aside_for_hosts_that_it_can_only_count() {
    for (stalled, others, stands_aside) in [("", 1, true), ("", 0, false), ("Order/*", 1, false)] {
        let mut host = Host::new();
        assert_eq!(
            host.beat_beside(&[(stalled, host.now + BEAT)], &Peers::Counted(others)),
            None,
            "its row must say why first"
        );
        let change = host.beat_beside(&[(stalled, host.now + BEAT)], &Peers::Counted(others));
        assert_eq!(change.is_some(), stands_aside, "{stalled:?} beside {others}: {change:?}");
    }
}

#[test]
fn a_host_whose_reads_are_refused_comes_back_when_it_sees_that_no_other_can_deliver_more() {
    let mut host = Host::new();
    for _ in 0..2 {
        host.beat_beside(&[("", host.now + BEAT)], &Peers::Counted(2));
    }
    assert!(host.availability.is_aside());
    assert_eq!(host.beat_beside(&[], &Peers::Counted(2)), None, "it rests");

    assert_eq!(host.beat(&[], &[other(&[""]), peer(0, &[""])]), Some(Change::Back));
}

#[test]
fn rests_grow_with_the_time_that_all_tries_fail_and_begin_anew_after_an_answer() {
    let (mut host, mut rest) = (Host::aside(), FIRST_REST);
    let began = host.now;
    for _ in 0..40 {
        host.rest(rest);
        let change = host.beat(&["Order/*"], &[other(&[])]);
        rest = ((host.now - began) / PART_OF_TROUBLE).clamp(FIRST_REST, LONGEST_REST);
        assert_eq!(change, Some(aside_for(rest)), "its row has reported the stall all the time");
    }
    assert_eq!(rest, LONGEST_REST);
    host.rest(rest);
    assert_eq!(host.beat(&[], &[other(&[])]), None, "an event was answered");
    host.beat(&["Order/*"], &[other(&[])]);
    assert_eq!(host.beat(&["Order/*"], &[other(&[])]), Some(aside_for(FIRST_REST)));
}

#[test]
fn an_old_stall_is_reported_and_no_reason_to_stand_aside_until_another_event_is_given_back() {
    let mut host = Host::aside();
    let last = host.now;
    host.rest(FIRST_REST);
    for _ in 0..9 {
        assert_eq!(host.beat_with(&[("Order/*", last)], Some(&[other(&[])])), None, "nothing was tried");
        assert_eq!(host.reported, [route("Order/*")], "so it is not known to work");
    }
}

/// Another try would add events whose outcomes cannot be stored.
#[test]
fn a_host_that_still_cannot_store_outcomes_rests_again_without_a_try() {
    let all: &[&str] = &[""];
    let mut host = Host::new();
    host.beat(all, &[other(&[])]);
    assert_eq!(host.beat(all, &[other(&[])]), Some(aside_for(FIRST_REST)));
    for rest in [FIRST_REST, FIRST_REST * 2, LONGEST_REST] {
        host.now += rest;
        assert_eq!(host.beat(all, &[other(&[])]), None);
        assert_eq!(host.beat(&[], &[other(&[])]), None, "it has no outcome to store, so it has not been refused again");
        host.availability.note_trial(false);
        assert!(host.availability.is_aside() && host.availability.needs_trial());
    }
    host.availability.note_trial(true);
    assert_eq!(host.beat(&[], &[other(&[])]), Some(Change::Back), "it can store them again");
}

#[test]
fn a_trial_that_succeeds_does_not_shorten_the_rest() {
    let mut host = Host::new();
    for _ in 0..2 {
        host.beat(&[""], &[other(&[])]);
    }
    host.availability.note_trial(true);
    assert_eq!(host.beat(&[], &[other(&[])]), None, "its events in flight are not handed over yet");
    host.now += FIRST_REST;
    assert_eq!(host.beat(&[], &[other(&[])]), Some(Change::Back));
}

#[test]
fn a_host_that_stands_aside_for_a_route_and_then_cannot_read_waits_for_a_trial() {
    let mut host = Host::aside();
    host.now += FIRST_REST;
    assert_eq!(host.beat(&["Order/*", ""], &[other(&[])]), None);
    assert!(host.availability.needs_trial());
    host.now += LONGEST_REST;
    assert_eq!(host.beat(&["Order/*"], &[other(&[])]), None);
    host.availability.note_trial(true);
    assert_eq!(host.beat(&["Order/*"], &[other(&[])]), Some(Change::Back));
}

#[test]
fn a_host_that_delivers_nothing_stands_aside_for_longer_than_its_lease_lasts() {
    let lease = Duration::from_secs(30);
    let mut host = Host { availability: Availability::new(lease), ..Host::new() };
    host.beat(&[""], &[other(&[])]);
    let change = host.beat(&[""], &[other(&[])]);
    assert!(matches!(change, Some(Change::Aside { rest, .. }) if rest > LEASE_ENDS_AFTER + lease), "{change:?}");
}

/// Three hosts that see each other's rows late, and beat in any order. Returns the steps with a change.
fn play(
    seed: u64,
    steps: usize,
    mut stalled: impl FnMut(&mut StdRng, usize, Duration) -> Vec<(&'static str, Duration)>,
) -> Vec<usize> {
    let mut rng = StdRng::seed_from_u64(seed);
    let began = Instant::now();
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::new()).collect();
    let mut seen: Vec<Vec<Peer>> = (0..3).map(|_| hosts.iter().map(Host::row).collect()).collect();
    let (mut changes, mut idle) = (Vec::new(), 0);
    for step in 0..steps {
        let number = step % 3;
        let time = began.elapsed() + SECOND * u32::try_from(step).expect("few steps");
        if rng.random_bool(0.7) {
            seen[number] = hosts.iter().map(Host::row).collect();
        }
        let peers: Vec<Peer> = (0..3).filter(|other| *other != number).map(|other| seen[number][other].clone()).collect();
        let given_back = stalled(&mut rng, number, time);
        let now = hosts[number].now + BEAT;
        let stalls: Vec<_> = given_back.iter().map(|(name, ago)| (*name, now - (*ago).min(time))).collect();
        hosts[number].availability.note_trial(stalls.iter().all(|(name, _)| !name.is_empty()));
        changes.extend(hosts[number].beat_with(&stalls, Some(&peers)).map(|_| step));
        idle = if hosts.iter().all(|host| host.availability.is_aside()) { idle + 1 } else { 0 };
        assert!(idle < 20, "seed {seed}, step {step}: no host works");
    }
    changes
}

#[test]
fn whatever_is_stalled_a_host_works_soon() {
    for seed in 0..200 {
        let mut current: Vec<Vec<&'static str>> = vec![Vec::new(); 3];
        play(seed, 600, |rng, number, _| {
            if rng.random_bool(0.2) {
                current[number] = ["", "Order/*", "User/*"].into_iter().filter(|_| rng.random_bool(0.4)).collect();
            }
            current[number].iter().map(|name| (*name, Duration::ZERO)).collect()
        });
    }
}

/// A sink is down for all, and events of it come seldom: partitions must not move for as long as that lasts.
#[test]
fn hosts_settle_in_a_common_outage() {
    for seed in 0..100 {
        let mut last = [None::<Duration>; 3];
        let changes = play(seed, 3_000, |rng, number, time| {
            if rng.random_bool(0.1) {
                last[number] = Some(time);
            }
            last[number].map(|at| ("Order/*", time.saturating_sub(at))).into_iter().collect()
        });
        // A step is a second.
        assert!(changes.len() <= 16 && changes.iter().all(|step| *step < 180), "seed {seed}: changes after {changes:?} s");
    }
}
