//! What a trace is made of.
//!
//! A step names things by their place among those that are there, counted round: "the third dead event". So every list of
//! steps is a trace, whatever was left out of it, and a failing one shrinks to the few steps that matter.

use outbox::Status;
use outbox::store::{ReadOrder, WaitsFor};

use super::parts::{
    DeadChoice, End, EventChoice, FenceChoice, Hours, Look, NewEvent, Outcome, Partitions, SessionAct, WithEffects, Writer,
};

/// One call, or time that passes.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Writes events in a transaction that ends at once.
    Write {
        events: Vec<NewEvent>,
        owner: usize,
        lease: Hours,
        by: Writer,
    },
    /// Inserts events in one of two transactions that stay open.
    Insert {
        transaction: usize,
        events: Vec<NewEvent>,
        owner: usize,
        lease: Hours,
    },
    /// Takes an event back in an open transaction.
    DeleteInserted {
        transaction: usize,
        event: usize,
    },
    /// Ends an open transaction.
    End {
        transaction: usize,
        end: End,
    },
    /// Another program's plain INSERT.
    PlainInsert {
        event_type: usize,
        key: Option<(usize, usize)>,
    },
    /// Claims the events of any partition that have been due longest.
    ClaimDue {
        owner: usize,
        lease: Hours,
        limit: usize,
    },
    /// Reads what an owner's partitions have due: twice, the second time behind the first.
    Read {
        owner: usize,
        partitions: Partitions,
        limit: u32,
        max_bytes: usize,
        skip_recent: Hours,
        with_some_in_hand: bool,
        /// Routes whose listeners are busy.
        busy: Vec<(usize, usize)>,
        order: Option<ReadOrder>,
    },
    /// Claims the events of these fences that are as they say.
    Claim {
        owner: usize,
        lease: Hours,
        fences: Vec<FenceChoice>,
    },
    Renew {
        fences: Vec<FenceChoice>,
        lease: Hours,
    },
    CountStart {
        fence: FenceChoice,
    },
    UncountStart {
        fence: FenceChoice,
    },
    /// Gives claims back that rows were inserted with: of events by their order of writing, committed or not.
    GiveBack {
        owner: usize,
        events: Vec<usize>,
    },
    Settle {
        outcomes: Vec<(FenceChoice, Outcome)>,
    },
    /// Settles events whose rows another program has locked, which lets them go when these steps of hosts are done.
    SettleLocked {
        outcomes: Vec<(FenceChoice, Outcome)>,
        /// Whether that program has written the rows, too.
        touched: bool,
        meanwhile: Vec<Step>,
    },
    /// Settles events, each together with follow-up events and changes of its plugin's state.
    SettleWithEffects {
        items: Vec<WithEffects>,
    },
    /// Reads a value as a call would.
    ReadState {
        plugin: usize,
        key: usize,
    },
    DeleteState {
        plugin: usize,
        key: usize,
    },
    DeleteAllState {
        plugin: usize,
        limit: u32,
    },
    Unblock {
        waits_for: WaitsFor,
        limit: u32,
        with_others: bool,
    },
    Unpark {
        routes: Vec<(usize, usize)>,
        limit: u32,
    },
    Replay {
        event: EventChoice,
    },
    ReplayBatch {
        filter: DeadChoice,
        limit: u32,
    },
    RetryNow {
        max_attempts: Option<u32>,
        after: u64,
        limit: u32,
    },
    Discard {
        event: EventChoice,
    },
    Skip {
        event: EventChoice,
    },
    Purge {
        status: Status,
        older_than: Hours,
        limit: u32,
    },
    PurgeUndelivered {
        older_than: Hours,
        limit: u32,
    },
    Pause {
        route: (usize, usize),
        reason: bool,
    },
    Resume {
        route: (usize, usize),
    },
    Remember {
        routes: Vec<(usize, usize)>,
    },
    /// Writes a heartbeat if there is a lease, as a host does, and keeps partitions.
    KeepPartitions {
        owner: usize,
        lease: Option<Hours>,
        most: u16,
        of: u16,
    },
    ReleasePartitions {
        owner: usize,
        partitions: Partitions,
        of_before: bool,
    },
    Heartbeat {
        owner: usize,
        lease: Hours,
        session: bool,
    },
    Leave {
        owner: usize,
    },
    /// What an owner does about its session, or what becomes of it.
    Session {
        owner: usize,
        act: SessionAct,
    },
    /// Looks for owners whose sessions are gone, and abandons one.
    Abandon {
        owner: usize,
    },
    /// Asks something that changes nothing.
    Look {
        at: Look,
        event: usize,
        waits_for: WaitsFor,
        partitions: Partitions,
    },
    /// Lets time pass. Not while a transaction is open.
    Pass {
        time: Hours,
    },
}
