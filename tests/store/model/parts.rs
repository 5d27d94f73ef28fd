//! What steps are about: events, transactions, sessions, outcomes, choices among what is there.

use std::time::Duration;

/// A span: all are whole hours, so that no trace is ever slow enough to change what is due.
pub(super) type Hours = u64;

/// Longer than any database can count.
pub(super) const AGES: Hours = u64::MAX;

pub(super) fn span(hours: Hours) -> Duration {
    Duration::from_secs(hours.saturating_mul(3_600))
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewEvent {
    /// The id of an event that was written before, instead of a new one.
    pub(super) again: Option<usize>,
    /// Inserted as claimed.
    pub(super) claimed: bool,
    pub(super) event_type: usize,
    /// Kind and id of its aggregate; none means an event of its own.
    pub(super) key: Option<(usize, usize)>,
    /// How far its writer's clock is ahead (1), or when it happened (-1: an hour ago).
    pub(super) occurred: i64,
    /// How long after it happened it may be delivered.
    pub(super) delay: Hours,
    /// How long after that it is given up.
    pub(super) expires: Option<Hours>,
    pub(super) payload_bytes: usize,
    pub(super) tenant: bool,
    pub(super) header: bool,
}

impl NewEvent {
    /// With nothing about it.
    pub(super) fn plain() -> Self {
        Self {
            again: None,
            claimed: false,
            event_type: 0,
            key: None,
            occurred: 0,
            delay: 0,
            expires: None,
            payload_bytes: 10,
            tenant: false,
            header: false,
        }
    }
}

/// In which transaction events are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Writer {
    /// The store's own.
    Store,
    /// The caller's.
    Caller(End),
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Commit,
    RollBack,
    /// Nobody ends it: it is dropped.
    Drop,
}

/// The proof under which an outcome is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum FenceChoice {
    /// Of a row that is held now.
    Held(usize),
    /// Of a row that is due and held by nobody.
    Read(usize),
    /// One of the last that an owner was given, whatever has happened since.
    InHand(usize, usize),
    /// Any that was ever given out, mostly over by now.
    Any(usize),
    /// One that was never given out.
    Never(usize),
}

/// What becomes of a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionAct {
    Hold,
    /// The lock is let go by its owner.
    End,
    /// The connection of its owner is gone without a word.
    Die,
}

/// An event that something is done to by hand.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventChoice {
    Dead(usize),
    Any(usize),
    /// One that is not there.
    Gone,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Done,
    Erased,
    Deferred(Hours),
    Retry(Hours, usize),
    Dead {
        error: usize,
        counted: bool,
        blocks: bool,
    },
    Parked(usize),
    /// Behind an earlier event of its aggregate; released when there is none.
    Behind(usize),
    Released(Hours, usize),
}

/// An outcome, and what its listener did beside.
#[derive(Clone, Debug)]
pub(super) struct WithEffects {
    pub(super) fence: FenceChoice,
    pub(super) outcome: Outcome,
    pub(super) emitted: Vec<NewEvent>,
    /// Whether it emits another event that the database refuses.
    pub(super) emits_refused: bool,
    pub(super) state: Option<StateWork>,
}

/// What a call did to its plugin's state.
#[derive(Clone, Debug)]
pub(super) struct StateWork {
    pub(super) plugin: usize,
    /// Keys, and bytes.
    pub(super) quota: (u64, u64),
    pub(super) keys: Vec<KeyWork>,
    /// Whether it writes another value that the database refuses.
    pub(super) writes_refused: bool,
}

/// What a call did to one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyWork {
    pub(super) key: usize,
    pub(super) read: Option<ReadChoice>,
    pub(super) write: Option<ValueWrite>,
}

/// Which version a call has read.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadChoice {
    /// The one that is there before the step.
    Now,
    /// One that an earlier step has read.
    Earlier(usize),
    /// That there is none.
    Nothing,
}

/// What a call leaves under a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueWrite {
    /// A value of this many bytes.
    Set(usize),
    Delete,
}

/// Which partitions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Partitions {
    All,
    Lower,
    Upper,
    None,
}

impl Partitions {
    pub(super) fn numbers(self) -> Vec<u16> {
        let half = outbox::store::PARTITIONS / 2;
        match self {
            Self::All => (0..outbox::store::PARTITIONS).collect(),
            Self::Lower => (0..half).collect(),
            Self::Upper => (half..outbox::store::PARTITIONS).collect(),
            Self::None => Vec::new(),
        }
    }
}

/// Which dead events.
#[derive(Clone, Debug, Default)]
pub(super) struct DeadChoice {
    pub(super) event_type: Option<usize>,
    pub(super) aggregate_type: Option<usize>,
    pub(super) aggregate_id: Option<usize>,
    pub(super) tenant: bool,
    pub(super) error: Option<usize>,
    pub(super) max_attempts: Option<u32>,
    /// Dead for less than this many hours and a half.
    pub(super) dead_within: Option<Hours>,
    /// Dead for at least half an hour.
    pub(super) dead_before: bool,
}

/// What can be asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    Stats,
    NextDue,
    NextToRead,
    Routes,
    CountRoutes,
    Nodes,
    BlockedKeys,
    Heads,
    Blockers,
    Get,
    Locked,
    CountDead,
    Audit,
    State,
}

/// Everything that can be asked.
pub(super) const LOOKS: [Look; 14] = [
    Look::Stats,
    Look::NextDue,
    Look::NextToRead,
    Look::Routes,
    Look::CountRoutes,
    Look::Nodes,
    Look::BlockedKeys,
    Look::Heads,
    Look::Blockers,
    Look::Get,
    Look::Locked,
    Look::CountDead,
    Look::Audit,
    Look::State,
];
