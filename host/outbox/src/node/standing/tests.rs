use super::*;
use crate::event::OwnerId;
use crate::store::Node;
use crate::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

fn route(name: &str) -> StalledRoute {
    let (route, listener) = (name.to_owned(), "the sink orders".to_owned());
    StalledRoute { route, listener, reason: "refused".to_owned(), since: Timestamp::from_micros(0) }
}

fn routes(names: &[&str]) -> Vec<StalledRoute> {
    names.iter().map(|name| route(name)).collect()
}

fn other(stalled: &[&str]) -> NodeRecord {
    let node = Node::new(OwnerId::generate("host"), "another host", "multi_node", "1");
    changed!(NodeRecord { stalled: routes(stalled), ..NodeRecord::new(&node, Timestamp::from_micros(0)) })
}

fn aside(stalled: &[&str]) -> NodeRecord {
    changed!(NodeRecord { room: 0, ..other(stalled) })
}

/// A host, the time, and what its row says.
struct Host {
    standing: Standing,
    now: Instant,
    told: Vec<StalledRoute>,
}

impl Host {
    fn new() -> Self {
        Self { standing: Standing::new(), now: Instant::now(), told: Vec::new() }
    }

    /// A beat three seconds later, with these routes stalled here.
    fn beat(&mut self, stalled: &[&str], others: &[NodeRecord]) -> Option<Change> {
        self.now += 3 * SECOND;
        let stalls: Vec<Stalled> =
            stalled.iter().map(|name| Stalled { route: route(name), last: self.now, is_lasting: true }).collect();
        let change = self.standing.decide(self.now, &stalls, &self.told, others);
        self.told = self.standing.to_tell(&stalls);
        change
    }

    /// One that stands aside for `Order/*`.
    fn aside() -> Self {
        let mut host = Self::new();
        host.beat(&["Order/*"], &[other(&[])]);
        assert!(matches!(host.beat(&["Order/*"], &[other(&[])]), Some(Change::Aside { .. })));
        host
    }

    /// Beats until a rest is over.
    fn rest(&mut self, rest: Duration) {
        self.now += rest - 6 * SECOND;
        assert_eq!(self.beat(&[], &[other(&[])]), None, "it rests");
        assert_eq!(self.beat(&[], &[other(&[])]), Some(Change::Back));
    }
}

#[test]
fn a_host_stands_aside_for_one_that_can_deliver_and_not_before_it_has_said_so() {
    let mut host = Host::new();
    assert_eq!(host.beat(&[], &[other(&[])]), None);
    assert_eq!(host.beat(&["Order/*"], &[other(&[])]), None, "the others could not yet say the same");
    assert_eq!(host.told, routes(&["Order/*"]));
    let change = host.beat(&["Order/*"], &[other(&[])]);
    assert_eq!(change, Some(Change::Aside { other: "another host".to_owned(), rest: FIRST_REST }));
    assert!(host.standing.is_aside());
    assert_eq!(host.told, routes(&["Order/*"]), "it says so as long as it stands aside");
}

#[test]
fn no_host_stands_aside_for_one_that_can_deliver_no_more() {
    let alone: &[&[NodeRecord]] = &[
        &[],
        &[other(&["Order/*"])],
        &[other(&["User/*"])],
        &[other(&["Order/*", "User/*"])],
        &[aside(&[])],
        &[changed!(NodeRecord { alive: false, ..other(&[]) })],
    ];
    for others in alone {
        let mut host = Host::new();
        for _ in 0..9 {
            assert_eq!(host.beat(&["Order/*"], others), None, "{others:?}");
        }
    }
    let mut host = Host::new();
    host.beat(&[""], &[other(&["Order/*", "User/*"])]);
    assert!(host.beat(&[""], &[other(&["Order/*", "User/*"])]).is_some(), "a host that cannot read delivers nothing");
    let mut host = Host::new();
    host.beat(&["Order/*", "User/*"], &[other(&["Order/*"])]);
    assert!(host.beat(&["Order/*", "User/*"], &[other(&["Order/*"])]).is_some(), "it can deliver User/*");
}

#[test]
fn a_host_comes_back_as_soon_as_no_other_can_deliver_more() {
    for others in [vec![], vec![other(&["Order/*"])], vec![aside(&["Order/*"])]] {
        let mut host = Host::aside();
        assert_eq!(host.beat(&[], &others), Some(Change::Back), "{others:?}");
        for _ in 0..9 {
            assert_eq!(host.beat(&["Order/*"], &others), None, "{others:?}");
        }
    }
}

#[test]
fn rests_grow_while_each_try_fails_and_begin_anew_after_an_answer() {
    let (mut host, mut rest) = (Host::aside(), FIRST_REST);
    for _ in 0..9 {
        host.rest(rest);
        assert_eq!(host.beat(&["Order/*"], &[other(&[])]), None, "the others are told first");
        rest = (rest * 2).min(LONGEST_REST);
        let change = host.beat(&["Order/*"], &[other(&[])]);
        assert_eq!(change, Some(Change::Aside { other: "another host".to_owned(), rest }));
    }
    assert_eq!(rest, LONGEST_REST);
    host.rest(rest);
    assert_eq!(host.beat(&[], &[other(&[])]), None, "an event was answered");
    host.beat(&["Order/*"], &[other(&[])]);
    let change = host.beat(&["Order/*"], &[other(&[])]);
    assert_eq!(change, Some(Change::Aside { other: "another host".to_owned(), rest: FIRST_REST }));
}

#[test]
fn a_stall_of_before_is_none_of_the_next_try_until_an_event_is_given_back_again() {
    let mut host = Host::aside();
    let last = host.now;
    host.rest(FIRST_REST);
    let old = [Stalled { route: route("Order/*"), last, is_lasting: true }];
    for _ in 0..9 {
        host.now += 3 * SECOND;
        assert_eq!(host.standing.decide(host.now, &old, &host.told, &[other(&[])]), None, "nothing was tried");
        host.told = host.standing.to_tell(&old);
        assert_eq!(host.told, []);
    }
}

/// Whatever becomes of the routes on each host, one of them works at any time.
#[test]
fn a_host_always_works() {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut hosts: Vec<Host> = (0..3).map(|_| Host::new()).collect();
        let mut rows: Vec<NodeRecord> = (0..3).map(|_| other(&[])).collect();
        let mut stalled: Vec<Vec<&str>> = vec![Vec::new(); 3];
        let mut without = 0;
        for step in 0..300 {
            let host = rng.random_range(0..3);
            if rng.random_bool(0.2) {
                stalled[host] = ["Order/*", "User/*", ""].into_iter().filter(|_| rng.random_bool(0.4)).collect();
            }
            let others: Vec<NodeRecord> =
                rows.iter().enumerate().filter(|(number, _)| *number != host).map(|(_, row)| row.clone()).collect();
            let own = &mut hosts[host];
            own.beat(&stalled[host].clone(), &others);
            let room = u32::from(!own.standing.is_aside());
            rows[host] = changed!(NodeRecord { stalled: own.told.clone(), room, ..rows[host].clone() });
            // Two hosts may stand aside for each other for as long as it takes both to beat.
            without = if rows.iter().all(|row| row.room == 0) { without + 1 } else { 0 };
            assert_eq!(without, 0, "seed {seed}, step {step}: no host works");
        }
    }
}
