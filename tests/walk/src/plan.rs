//! What a seed decides before anything runs.

use std::time::Duration;

use outbox::Mode;
use outbox::order::{OnDead, OrderConfig};
use outbox::purge::PurgeConfig;

use crate::chance::Chance;
use crate::drift::Drift;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) mode: Mode,
    pub(crate) hosts: usize,
    pub(crate) events: usize,
    pub(crate) aggregates: usize,
    /// How many events in a thousand their writers put off, and for how long at most.
    pub(crate) put_off: u64,
    pub(crate) put_off_for: Duration,
    /// How long faults come, and events are written.
    pub(crate) chaos: Duration,
    pub(crate) lease: Duration,
    pub(crate) deadline: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) workers: usize,
    pub(crate) queue: usize,
    pub(crate) poll_interval: Duration,
    pub(crate) poll_batch: u32,
    pub(crate) settle_batch: usize,
    pub(crate) max_attempts: u32,
    pub(crate) max_deferrals: u32,
    pub(crate) order: OrderConfig,
    pub(crate) purge: PurgeConfig,
    pub(crate) relays: Relays,
    /// How many calls open a breaker, and how long it pauses a listener.
    pub(crate) breaker_threshold: u32,
    pub(crate) breaker_pause: Duration,
    /// Whether the database has locks that tell of hosts that are gone.
    pub(crate) sessions: bool,
    /// Whether it has notifications.
    pub(crate) notifies: bool,
    /// How long a read at the front of the table takes, while the database is not well: behind that it is quick.
    pub(crate) front_takes: Duration,
    /// How the database's clock differs from the monotonic clock of the hosts, and their time of day from both.
    pub(crate) database_clock: Drift,
    pub(crate) time_of_day: Drift,
    pub(crate) faults: Faults,
    pub(crate) listeners: Manners,
}

/// What goes wrong with the database, in this many of a thousand calls unless it says otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Refused, and nothing has happened.
    pub(crate) before: u64,
    /// Done, and the answer is lost.
    pub(crate) after: u64,
    /// Done, late or answered late.
    pub(crate) slow: u64,
    pub(crate) slowest: Duration,
    /// Rows that somebody else locks, in the whole run.
    pub(crate) locks: usize,
    /// Connections with sessions that break, in the whole run.
    pub(crate) lost_sessions: usize,
    /// Hosts that are killed, and that are stopped and started again.
    pub(crate) kills: usize,
    pub(crate) restarts: usize,
    pub(crate) storms: Vec<Storm>,
    /// Of how many events the database refuses the outcomes, the claims, and the renewals of claims, for as long as faults come.
    pub(crate) refused: usize,
    pub(crate) unclaimable: usize,
    pub(crate) unrenewable: usize,
    /// Of how many events it cannot return the payload, for as long as faults come.
    pub(crate) damaged: usize,
    /// How many events it does not delete, for as long as faults come.
    pub(crate) undeletable: usize,
    /// Which host has no right to delete events.
    pub(crate) may_not_purge: Option<usize>,
    /// A host for which alone the database fails.
    pub(crate) sick: Option<Sick>,
}

/// A host for which the database fails until faults are over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sick {
    pub(crate) host: usize,
    pub(crate) from: Duration,
    pub(crate) kind: Sickness,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Sickness {
    /// It gets no connection but for its heartbeat.
    NoConnections,
    /// A standby answers this many of a thousand of its reads. The host refuses such an answer, because it may be stale.
    StaleReads(u64),
}

/// A time in which much goes wrong at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storm {
    /// For this host alone, or for all.
    pub(crate) host: Option<usize>,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) kind: StormKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StormKind {
    /// Every call is refused.
    Refuses,
    /// Every call stands until the end of the storm.
    Hangs,
    /// Half of the calls fail, before or after their effect.
    Flaky,
}

/// Which hosts have a relay for the last route, instead of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relays {
    Nowhere,
    /// All that answer the route: the first host by its name, the others by a pattern.
    Everywhere,
    /// Hosts without its listener, by a pattern, until they learn that another host has the listener.
    WithoutListener,
}

/// How listeners behave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manners {
    /// How many events in a thousand give trouble at first.
    pub(crate) troubled: u64,
    /// How many events in a thousand die by the listener's word.
    pub(crate) dying: u64,
    /// The longest ordinary call.
    pub(crate) longest: Duration,
    /// When the listener of the first route breaks with every call.
    pub(crate) breaks: Option<Breaks>,
}

/// A time in which a listener breaks with every call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaks {
    /// At this host alone, or at all.
    pub(crate) host: Option<usize>,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Breaks {
    /// Whether it breaks at this host now.
    pub(crate) fn concern(&self, host: usize, now: Duration) -> bool {
        self.host.is_none_or(|only| only == host) && (self.from..self.to).contains(&now)
    }
}

const MODES: [Mode; 4] = [Mode::SingleNode, Mode::MultiNode, Mode::Ordered, Mode::OrderedByAggregate];

impl Plan {
    pub(crate) fn of(seed: u64, mode: Option<Mode>) -> Self {
        let chance = &mut Chance::of(seed, 1);
        let by_chance = chance.one_of(&MODES);
        let mode = mode.unwrap_or(by_chance);
        let hosts = match mode {
            Mode::SingleNode => chance.one_of(&[1, 1, 1, 2]),
            _ => chance.one_of(&[1, 2, 2, 3]),
        };
        let chaos = Duration::from_secs(chance.number(20..120));
        let lease = Duration::from_secs(chance.number(3..31));
        let stop_on_first_failure = !chance.per_mille(250);
        let on_dead = chance.one_of(&[OnDead::Block, OnDead::Skip]);
        let (put_off, put_off_for) = Chance::of(seed, 11).one_of(&[(100, 30), (100, 30), (500, 4)]);
        Self {
            seed,
            mode,
            hosts,
            events: chance.index(60) + 5,
            aggregates: chance.index(6) + 1,
            put_off,
            put_off_for: Duration::from_secs(put_off_for),
            chaos,
            lease,
            deadline: lease.mul_f64(chance.one_of(&[0.2, 0.5, 0.9])),
            drain_timeout: chance.millis(0..6_000),
            workers: chance.index(6) + 1,
            queue: chance.one_of(&[1, 2, 5, 20, 100]),
            poll_interval: chance.millis(100..6_000),
            poll_batch: u32::try_from(chance.one_of(&[1_u64, 2, 5, 50])).expect("a small number"),
            settle_batch: chance.one_of(&[1, 2, 10, 500]),
            max_attempts: u32::try_from(chance.number(1..7)).expect("a small number"),
            max_deferrals: chance.one_of(&[1, 3, 1_000]),
            order: OrderConfig { stop_on_first_failure, on_dead },
            purge: purge(&mut Chance::of(seed, 19)),
            relays: Chance::of(seed, 21).one_of(&[
                Relays::Nowhere,
                Relays::Nowhere,
                Relays::Everywhere,
                Relays::WithoutListener,
            ]),
            breaker_threshold: chance.one_of(&[2, 3, 5]),
            breaker_pause: Duration::from_secs(chance.number(2..20)),
            sessions: chance.per_mille(750),
            notifies: chance.per_mille(500),
            front_takes: Duration::from_millis(Chance::of(seed, 10).one_of(&[0, 0, 0, 30, 300, 3_000])),
            database_clock: Drift::by(&mut Chance::of(seed, 17), chaos, 150),
            time_of_day: Drift::by(&mut Chance::of(seed, 18), chaos, 500),
            faults: Faults::by(chance, hosts, chaos)
                .with_refused(&mut Chance::of(seed, 12))
                .with_sick_host(&mut Chance::of(seed, 13), hosts, chaos)
                .with_refused_claims(&mut Chance::of(seed, 14))
                .with_damage(&mut Chance::of(seed, 15))
                .with_refused_purges(&mut Chance::of(seed, 20), hosts),
            listeners: Manners::by(chance, lease, chaos).with_bad_host(&mut Chance::of(seed, 16), hosts, chaos),
        }
        .with_time_to_notice()
    }

    /// If one sick host, or the listener of one host, is the only fault, it lasts for so long, and calls are so short, that events must be
    /// delivered meanwhile.
    fn with_time_to_notice(mut self) -> Self {
        let at_one_host = self.listeners.breaks.filter(|breaks| breaks.host.is_some());
        if self.has_only_mild_faults() && (self.faults.sick.is_some() || at_one_host.is_some()) {
            let from = Duration::from_secs(20);
            self.chaos = Duration::from_secs(200);
            if let Some(sick) = &mut self.faults.sick {
                sick.from = from;
            }
            let breaks = at_one_host.map(|breaks| Breaks { from, to: self.chaos, ..breaks });
            self.listeners = Manners { longest: Duration::from_millis(200), breaks, ..Manners::default() };
        }
        self
    }

    /// Whether the database does everything at once, except for outcomes and claims that it refuses, and no host goes or stands aside. A
    /// claim that cannot be renewed ends, and its call is cut off.
    pub(crate) fn is_quiet(&self) -> bool {
        let all_work = self.faults.sick.is_none() && self.listeners.breaks.is_none_or(|breaks| breaks.host.is_none());
        self.has_only_mild_faults() && all_work && self.faults.unrenewable == 0
    }

    /// Whether the only faults are refused outcomes, claims, renewals and purges, damaged payloads, one sick host, and clocks that drift.
    /// If the database's clock is set, leases end early, or events wait longer.
    pub(crate) fn has_only_mild_faults(&self) -> bool {
        let Faults { before, after, slow, locks, lost_sessions, kills, restarts, ref storms, .. } = self.faults;
        let is_steady = !self.database_clock.is_set();
        is_steady && before + after + slow == 0 && locks + lost_sessions + kills + restarts == 0 && storms.is_empty()
    }

    /// In how much time a stop must end, whatever fails: what the configuration promises, and a little for the last steps.
    pub(crate) fn stop_within(&self) -> Duration {
        self.drain_timeout + Duration::from_secs(9) + Duration::from_millis(100)
    }
}

impl Faults {
    fn by(chance: &mut Chance, hosts: usize, chaos: Duration) -> Self {
        if chance.per_mille(150) {
            return Self::default();
        }
        let often = chance.one_of(&[0, 5, 30, 100]);
        let storms = (0..chance.index(4)).map(|_| Storm::by(chance, hosts, chaos)).collect();
        Self {
            before: chance.number(0..often + 1),
            after: chance.number(0..often + 1),
            slow: chance.number(0..2 * often + 1),
            slowest: Duration::from_millis(chance.one_of(&[100, 2_000, 10_000, 60_000])),
            locks: chance.one_of(&[0, 0, 5, 20]),
            lost_sessions: chance.one_of(&[0, 0, 2, 6]),
            kills: chance.one_of(&[0, 0, 1, 3]),
            restarts: chance.one_of(&[0, 0, 1, 2]),
            storms,
            refused: 0,
            unclaimable: 0,
            unrenewable: 0,
            damaged: 0,
            undeletable: 0,
            may_not_purge: None,
            sick: None,
        }
    }

    /// With outcomes that are refused, in some runs: beside everything else, or alone.
    fn with_refused(self, chance: &mut Chance) -> Self {
        let refused = chance.one_of(&[0, 0, 0, 0, 1, 2, 3]);
        if refused > 0 && chance.per_mille(500) { Self { refused, ..Self::default() } } else { Self { refused, ..self } }
    }

    /// With a sick host, in some runs: beside everything else, or alone. The first host is always well, since it alone has all listeners
    /// for certain.
    fn with_sick_host(self, chance: &mut Chance, hosts: usize, chaos: Duration) -> Self {
        if hosts < 2 || !chance.per_mille(400) {
            return self;
        }
        let (host, from) = (1 + chance.index(hosts - 1), chaos.mul_f64(chance.number(0..500) as f64 / 1_000.0));
        let is_alone = chance.per_mille(500);
        let kind = match chance.index(4) {
            0 | 1 => Sickness::NoConnections,
            2 => Sickness::StaleReads(1_000),
            _ => Sickness::StaleReads(100),
        };
        let sick = Some(Sick { host, from, kind });
        if is_alone { Self { sick, ..Self::default() } } else { Self { sick, ..self } }
    }

    /// With claims and renewals that are refused, in some runs, beside everything else.
    fn with_refused_claims(self, chance: &mut Chance) -> Self {
        let [unclaimable, unrenewable] = [(); 2].map(|()| chance.one_of(&[0, 0, 0, 0, 0, 0, 1, 3]));
        Self { unclaimable, unrenewable, ..self }
    }

    /// With payloads that cannot be returned, in some runs, beside everything else.
    fn with_damage(self, chance: &mut Chance) -> Self {
        Self { damaged: chance.one_of(&[0, 0, 0, 0, 0, 0, 1, 2]), ..self }
    }

    /// With events that cannot be deleted, and a host without the right to delete, in some runs, beside everything else. The first host has
    /// that right.
    fn with_refused_purges(self, chance: &mut Chance, hosts: usize) -> Self {
        let undeletable = chance.one_of(&[0, 0, 1, 3]);
        let may_not_purge = (hosts > 1 && chance.per_mille(300)).then(|| hosts - 1);
        Self { undeletable, may_not_purge, ..self }
    }
}

/// Hosts purge in half of the runs. No longer than until the end of a run, or nothing would be old enough.
fn purge(chance: &mut Chance) -> PurgeConfig {
    let kept = [2, 10, 40].map(Duration::from_secs);
    PurgeConfig {
        enabled: chance.per_mille(500),
        retention: chance.one_of(&kept),
        dead_retention: chance.per_mille(500).then(|| chance.one_of(&kept)),
        interval: chance.millis(5_000..15_000),
        batch_size: u32::try_from(chance.one_of(&[1_u64, 3, 500])).expect("a small number"),
        ..PurgeConfig::default()
    }
}

impl Storm {
    fn by(chance: &mut Chance, hosts: usize, chaos: Duration) -> Self {
        let host = chance.per_mille(600).then(|| chance.index(hosts));
        let from = chaos.mul_f64(chance.number(0..900) as f64 / 1_000.0);
        let to = from + chance.millis(200..40_000);
        let kind = chance.one_of(&[StormKind::Refuses, StormKind::Hangs, StormKind::Flaky]);
        Self { host, from, to, kind }
    }
}

impl Manners {
    fn by(chance: &mut Chance, lease: Duration, chaos: Duration) -> Self {
        let breaks = chance.per_mille(300).then(|| {
            let from = chaos.mul_f64(chance.number(0..700) as f64 / 1_000.0);
            Breaks { host: None, from, to: from + chance.millis(5_000..40_000) }
        });
        Self {
            troubled: chance.one_of(&[0, 200, 700]),
            dying: chance.one_of(&[0, 100]),
            longest: lease.mul_f64(chance.one_of(&[0.001, 0.1, 0.6])),
            breaks,
        }
    }

    /// With a listener that breaks at one host for as long as faults come, in some runs. The first host is always well.
    fn with_bad_host(self, chance: &mut Chance, hosts: usize, chaos: Duration) -> Self {
        if hosts < 2 || !chance.per_mille(200) {
            return self;
        }
        let (host, from) = (1 + chance.index(hosts - 1), chaos.mul_f64(chance.number(0..500) as f64 / 1_000.0));
        Self { breaks: Some(Breaks { host: Some(host), from, to: chaos }), ..self }
    }
}
