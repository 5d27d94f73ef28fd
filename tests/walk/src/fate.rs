//! What becomes of one call of the database.

use std::time::Duration;

use outbox::StoreError;
use outbox::sqlx;

use crate::again;
use crate::plan::{Faults, Sick, Sickness, StormKind};
use crate::world::World;

/// Calls on the connections that are reserved for leases and session.
const RESERVED_CALLS: [&str; 12] = [
    "heartbeat",
    "keep_partitions",
    "release_partitions",
    "restore_partitions",
    "nodes",
    "peers",
    "now",
    "leave",
    "renew",
    "hold_session",
    "prove",
    "prove_with_overview",
];

/// Calls that only read: a standby answers them, and the host refuses the answer. A session proves itself on its own connection.
const READS: [&str; 17] = [
    "blockers",
    "check_schema",
    "count_purgeable",
    "free_sessions",
    "get",
    "heads",
    "hold_session",
    "list",
    "next_due",
    "next_to_read",
    "nodes",
    "oldest_purgeable",
    "parked_route",
    "peers",
    "read",
    "routes",
    "unsettled",
];

/// What becomes of one call.
#[derive(Debug)]
pub(crate) struct Fate {
    /// How long it takes until it has its effect, and from there until the answer.
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) end: FateEnd,
    /// Whether it has its effect though its host is killed meanwhile: it was sent already.
    pub(crate) outlives: bool,
}

#[derive(Debug)]
pub(crate) enum FateEnd {
    Answered,
    /// Nothing has happened.
    Refused(StoreError),
    /// It has happened, and the answer is lost.
    Lost(StoreError),
}

impl Fate {
    /// What is too slow to be nothing.
    const SLOW: Duration = Duration::from_millis(300);

    pub(crate) fn is_fault(&self) -> bool {
        !matches!(self.end, FateEnd::Answered) || self.before + self.after > Self::SLOW
    }

    /// For the history.
    pub(crate) fn shown(&self) -> String {
        let late =
            |span: Duration| if span > Self::SLOW { format!(" after {:.3} s", span.as_secs_f64()) } else { String::new() };
        match &self.end {
            FateEnd::Answered => format!("done{}, answered{}", late(self.before), late(self.after)),
            FateEnd::Refused(error) => format!("refused{}: {}", late(self.before), error.code()),
            FateEnd::Lost(error) => format!("done{}, answer lost{}: {}", late(self.before), late(self.after), error.code()),
        }
    }
}

impl World {
    /// What becomes of the next call of a host.
    pub(crate) fn fate(&mut self, life: usize, name: &str) -> Fate {
        let (before, after) = (self.chance.millis(0..2), self.chance.millis(0..2));
        let outlives = self.chance.per_mille(500);
        let mut fate = Fate { before, after, end: FateEnd::Answered, outlives };
        if self.is_healed() {
            return fate;
        }
        let (now, place) = (again::elapsed(), self.lives[life].place);
        let sick = self.plan.faults.sick.filter(|sick| sick.host == place && sick.from <= now);
        if let Some(error) = sick.and_then(|sick| self.error_of_sickness(sick, name)) {
            fate.end = FateEnd::Refused(error);
            return fate;
        }
        let storm = self
            .plan
            .faults
            .storms
            .iter()
            .find(|storm| storm.host.is_none_or(|host| host == place) && storm.from <= now && now < storm.to);
        if let Some(storm) = storm.copied() {
            let rest = storm.to - now;
            match storm.kind {
                StormKind::Refuses => fate.end = FateEnd::Refused(self.error(true)),
                StormKind::Hangs => match self.chance.index(4) {
                    0 => (fate.before, fate.end) = (rest, FateEnd::Refused(self.error(true))),
                    1 => (fate.after, fate.end) = (rest, FateEnd::Lost(self.error(false))),
                    2 => fate.before = rest,
                    _ => fate.after = rest,
                },
                StormKind::Flaky if self.chance.per_mille(500) => {
                    let refused = self.chance.per_mille(500);
                    let error = self.error(refused);
                    fate.end = if refused { FateEnd::Refused(error) } else { FateEnd::Lost(error) };
                }
                StormKind::Flaky => {}
            }
            return fate;
        }
        let Faults { before, after, slow, slowest, .. } = self.plan.faults;
        if self.chance.per_mille(slow) {
            let spans =
                [self.chance.number(0..slowest.as_micros() as u64 + 1), self.chance.number(0..slowest.as_micros() as u64 + 1)];
            match self.chance.index(3) {
                0 => fate.before += Duration::from_micros(spans[0]),
                1 => fate.after += Duration::from_micros(spans[1]),
                _ => (fate.before, fate.after) = (Duration::from_micros(spans[0]), Duration::from_micros(spans[1])),
            }
        }
        if self.chance.per_mille(before) {
            fate.end = FateEnd::Refused(self.error(true));
        } else if self.chance.per_mille(after) {
            fate.end = FateEnd::Lost(self.error(false));
        }
        fate
    }

    /// The error of a call of a sick host; `None` if its sickness does not concern the call.
    fn error_of_sickness(&mut self, sick: Sick, name: &str) -> Option<StoreError> {
        match sick.kind {
            Sickness::NoConnections => (!RESERVED_CALLS.contains(&name)).then(|| {
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                StoreError::TooManyConnections { action: "connect", source }
            }),
            Sickness::StaleReads(share) => (READS.contains(&name) && self.chance.per_mille(share))
                .then(|| StoreError::StaleRead { action: "read", server: "a standby".to_owned() }),
        }
    }

    /// What the database or its driver says. A refusal may have reasons that leave no doubt.
    fn error(&mut self, refused: bool) -> StoreError {
        let action = "do what it was asked";
        let source = || sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        match self.chance.index(if refused { 8 } else { 4 }) {
            0..=2 => StoreError::Disconnected { action, source: source() },
            3 => StoreError::Failed { action, source: source() },
            4 => StoreError::Locked { action, source: source() },
            5 => StoreError::TooManyConnections { action, source: source() },
            6 => StoreError::TimedOut { action, source: source() },
            _ => StoreError::Failed { action, source: sqlx::Error::Protocol("it makes no sense".into()) },
        }
    }
}
