use super::*;
use crate::partition::Partitions;

#[test]
fn an_event_is_marked_once_and_let_go_even_by_a_panic() {
    let in_flight = Arc::new(InFlight::default());
    let id: EventId = "a".parse().expect("valid");
    let mark = in_flight.mark(id, None, Duration::from_secs(1)).expect("free");
    assert!(in_flight.mark(id, None, Duration::from_secs(1)).is_none(), "somebody has it");
    let panicked = std::thread::spawn(move || {
        let _mark = mark;
        panic!("a worker panics");
    });
    assert!(panicked.join().is_err());
    assert!(in_flight.mark(id, None, Duration::from_secs(1)).is_some(), "free again");
}

#[test]
fn claims_of_stored_events_are_held_and_a_renewal_counts_for_its_own_claim_alone() {
    let in_flight = Arc::new(InFlight::default());
    let [stored, never] = ["a", "b"].map(|id| id.parse::<EventId>().expect("valid"));
    let fence = Fence { sequence: 1, claim: 2 };
    let end = Instant::now() + Duration::from_secs(1);
    let mark = in_flight.mark_until(stored, Some(fence), end).expect("free");
    let excluded = in_flight.mark_until(never, None, end).expect("free");

    assert_eq!((in_flight.held(), in_flight.len()), (vec![(stored, fence)], 2));
    let later = end + Duration::from_secs(60);
    in_flight.renewed(stored, Fence { claim: 1, ..fence }, Some(later));
    in_flight.renewed(never, fence, Some(later));
    assert_eq!((mark.lease_end(), excluded.lease_end()), (Some(end), Some(end)), "by another claim, and of none");
    in_flight.renewed(stored, fence, Some(later));
    assert_eq!(mark.lease_end(), Some(later));
    drop((mark, excluded));
    in_flight.renewed(stored, fence, Some(later));
    assert!(in_flight.is_empty() && in_flight.held().is_empty(), "a late renewal does not bring it back");
}

#[test]
fn an_event_that_rests_is_marked_and_the_end_of_its_rest_is_counted() {
    let in_flight = Arc::new(InFlight::default());
    let mark = in_flight.mark("a".parse().expect("valid"), None, Duration::from_secs(1)).expect("free");
    assert_eq!((in_flight.len(), in_flight.not_resting(), in_flight.rests_ended()), (1, 1, 0));
    mark.rest();
    assert_eq!((in_flight.len(), in_flight.not_resting(), in_flight.rests_ended()), (1, 0, 0));
    mark.end_rest();
    assert_eq!((in_flight.len(), in_flight.not_resting(), in_flight.rests_ended()), (1, 1, 1));
}

#[tokio::test]
async fn an_event_that_is_claimed_before_its_last_mark_has_gone_is_marked_as_soon_as_it_has() {
    let in_flight = Arc::new(InFlight::default());
    let id: EventId = "a".parse().expect("valid");
    let [before, now] = [1, 2].map(|claim| Fence { sequence: 1, claim });
    let end = Instant::now() + Duration::from_secs(60);
    let mark = in_flight.mark_until(id, Some(before), end).expect("free");

    let again = in_flight.mark_claimed(id, now, end, None, end);
    let let_go = async {
        tokio::task::yield_now().await;
        drop(mark);
    };
    let (again, ()) = tokio::join!(again, let_go);

    assert_eq!(again.expect("it was let go").fence(), Some(now));
}

#[tokio::test]
async fn an_event_whose_listener_is_at_work_after_its_claim_has_ended_is_not_waited_for() {
    let in_flight = Arc::new(InFlight::default());
    let id: EventId = "a".parse().expect("valid");
    let [before, again] = [1, 2].map(|claim| Fence { sequence: 1, claim });
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    let mark = in_flight.mark_until(id, Some(before), now).expect("free");
    assert!(in_flight.mark_claimed(id, again, later, None, later).await.is_none(), "its claim has ended");
    in_flight.renewed(id, before, None);
    assert!(in_flight.mark_claimed(id, again, later, None, later).await.is_none(), "its claim was lost");
    drop(mark);
    let _stuck = in_flight.mark_until(id, Some(before), later).expect("free");
    assert!(in_flight.mark_claimed(id, again, later, None, now).await.is_none(), "patience ends");
}

#[test]
fn a_lost_claim_is_not_renewed_again() {
    let in_flight = Arc::new(InFlight::default());
    let id: EventId = "a".parse().expect("valid");
    let fence = Fence { sequence: 1, claim: 1 };
    let mark = in_flight.mark(id, Some(fence), Duration::from_secs(1)).expect("free");
    in_flight.renewed(id, fence, None);
    assert_eq!(mark.lease_end(), None);
    assert!(in_flight.held().is_empty());
}

#[test]
fn a_claimed_event_is_known_until_its_row_is_claimed_again_in_whatever_epoch_it_is_read() {
    let in_flight = Arc::new(InFlight::default());
    let id: EventId = "a".parse().expect("valid");
    let hot = Fence::new(7, 0, 1);
    // Its claim has ended.
    let mark = in_flight.mark_until(id, Some(hot), Instant::now()).expect("free");

    assert!(in_flight.knows(&id, Fence::new(7, 5, 1)), "no host has claimed it since");
    assert!(!in_flight.knows(&id, Fence::new(7, 5, 2)), "another host has claimed it since");
    drop(mark);
    let cold = in_flight.mark_until(id, Some(Fence::new(7, 5, 3)), Instant::now()).expect("free");
    assert!(in_flight.knows(&id, Fence::new(7, 9, 3)), "the partition has come back to this host");
    drop(cold);
    assert!(!in_flight.knows(&id, Fence::new(7, 9, 3)));
}

/// Events that are read of partition 0, under epoch 1.
struct Reads {
    in_flight: Arc<InFlight>,
    partitions: Arc<Partitions>,
    id: EventId,
}

impl Reads {
    fn new() -> Self {
        let partitions = Partitions::all_held(1);
        Self { in_flight: Arc::default(), partitions, id: "a".parse().expect("valid") }
    }

    /// Marks the event as read with this `claim_seq`.
    async fn mark(&self, claim_seq: u64) -> Result<Mark, NotMarked> {
        let hold = self.partitions.hold(0, 1).expect("it is open");
        self.in_flight.mark_read(self.id, Fence::new(7, 1, claim_seq), hold, Instant::now()).await
    }
}

#[tokio::test]
async fn what_was_read_is_held_by_its_partition_and_is_no_claim_to_renew() {
    let reads = Reads::new();
    let mark = reads.mark(1).await.expect("free");
    assert!(mark.is_read() && mark.lease_end().is_some_and(|end| end > Instant::now()));
    assert_eq!((reads.in_flight.held(), reads.in_flight.known()), (vec![], vec![7]));
    assert_eq!(reads.in_flight.len(), 1);
    assert_eq!(reads.mark(1).await.expect_err("the same row"), NotMarked::Known);
    assert_eq!(reads.mark(2).await.expect_err("its outcome is stored, its mark is not gone"), NotMarked::InHand);
    mark.settled();
    assert!(reads.in_flight.is_empty() && reads.in_flight.known().is_empty());
    assert!(reads.mark(2).await.is_ok());
}

#[tokio::test]
async fn an_event_that_was_read_is_not_known_under_a_later_epoch() {
    let reads = Reads::new();
    let _mark = reads.mark(1).await.expect("free");
    assert!(reads.in_flight.knows(&reads.id, Fence::new(7, 1, 1)));
    assert!(!reads.in_flight.knows(&reads.id, Fence::new(7, 2, 1)), "another host may have delivered it without a claim");
}

#[tokio::test]
async fn what_a_read_shows_as_it_was_before_its_outcome_is_not_delivered_again() {
    let reads = Reads::new();
    let mark = reads.mark(1).await.expect("free");
    let reading = reads.in_flight.begin_read();
    mark.settled();
    assert!(reads.in_flight.is_empty(), "it is in nobody's hands");

    assert_eq!(reads.mark(1).await.expect_err("the read began before the outcome"), NotMarked::Known);
    let again = reads.mark(2).await.expect("due again, and read after the outcome");
    drop(reading);

    assert_eq!(reads.in_flight.len(), 1, "the end of the read takes away nothing that is in hand");
    again.settled();
    let mark = reads.mark(3).await.expect("free");
    let reading = reads.in_flight.begin_read();
    mark.settled();
    drop(reading);
    assert!(reads.mark(3).await.is_ok(), "no read is on its way that may show it as it was");
}

#[tokio::test]
async fn what_is_let_go_without_an_outcome_is_not_read_again_before_it_was_claimed() {
    let reads = Reads::new();
    drop(reads.mark(1).await.expect("free"));
    assert!(reads.in_flight.is_empty(), "it is in nobody's hands");
    assert_eq!(reads.in_flight.known(), [7]);
    assert_eq!(reads.mark(1).await.expect_err("its next delivery must have another number"), NotMarked::Known);

    let [dropped] = reads.in_flight.take_dropped()[..] else { panic!("one was dropped") };
    assert_eq!((dropped.id, dropped.fence, dropped.partition), (reads.id, Fence::new(7, 1, 1), (0, 1)));
    assert!(reads.in_flight.take_dropped().is_empty());
    reads.in_flight.put_back([dropped]);
    assert_eq!(reads.in_flight.take_dropped().len(), 1);
    let claimed = reads.mark(2).await.expect("claimed and settled by somebody meanwhile");
    reads.in_flight.forget(&dropped);
    assert_eq!(reads.in_flight.len(), 1, "what is in hand now is not forgotten");
    drop(claimed);
    reads.in_flight.take_dropped().iter().for_each(|dropped| reads.in_flight.forget(dropped));
    assert!(reads.in_flight.known().is_empty());
}

#[tokio::test]
async fn a_read_delivers_nothing_that_was_claimed_after_it_had_begun() {
    let reads = Reads::new();
    let reading = reads.in_flight.begin_read();
    let claimed = |claim_seq| {
        let mark = reads.in_flight.mark(reads.id, Some(Fence::new(7, 1, claim_seq)), Duration::from_secs(30));
        mark.expect("free")
    };
    claimed(2).settled();
    assert_eq!(reads.mark(1).await.expect_err("it shows the row as it was before the claim"), NotMarked::Known);
    drop(claimed(3));
    assert_eq!(reads.mark(1).await.expect_err("the same where it has no outcome"), NotMarked::Known);
    assert!(reads.in_flight.is_empty() && reads.in_flight.known().is_empty());
    drop(reading);
    assert!(reads.mark(1).await.is_ok(), "a later read shows the row as it is");
}

#[tokio::test]
async fn what_was_forgotten_while_a_read_was_on_its_way_is_not_delivered_by_it() {
    let reads = Reads::new();
    drop(reads.mark(1).await.expect("free"));
    let reading = reads.in_flight.begin_read();
    reads.in_flight.take_dropped().iter().for_each(|dropped| reads.in_flight.forget(dropped));
    assert_eq!(reads.mark(1).await.expect_err("somebody has ended it meanwhile"), NotMarked::Known);
    drop(reading);
    assert!(reads.mark(1).await.is_ok());
}

#[tokio::test]
async fn what_is_given_back_as_it_was_may_be_read_again_and_nothing_older() {
    let reads = Reads::new();
    let slow = reads.in_flight.begin_read();
    reads.mark(1).await.expect("free").settled();
    reads.mark(2).await.expect("due again").unchanged();
    assert_eq!(reads.mark(1).await.expect_err("the slow read began before the outcome"), NotMarked::Known);
    reads.mark(2).await.expect("it is as it was").unchanged();
    drop(slow);
    assert!(reads.in_flight.known().is_empty());
    assert!(reads.mark(1).await.is_ok(), "nothing is remembered once no read is on its way");
}

#[tokio::test]
async fn of_two_reads_the_last_one_ends_what_is_known_of_events_that_are_gone() {
    let reads = Reads::new();
    let mark = reads.mark(1).await.expect("free");
    let (slow, quick) = (reads.in_flight.begin_read(), reads.in_flight.begin_read());
    mark.settled();
    drop(quick);
    assert_eq!(reads.mark(1).await.expect_err("the slow one began before the outcome"), NotMarked::Known);
    drop(slow);
    assert!(reads.mark(1).await.is_ok());
}

#[tokio::test]
async fn an_event_that_comes_back_too_early_after_its_outcome_is_doubtful() {
    let reads = Reads::new();
    let mark = reads.mark(1).await.expect("free");
    assert!(!mark.is_doubtful(), "no outcome is stored");
    mark.stored(2);

    for (claim_seq, is_doubtful) in [(1, true), (2, true), (3, false)] {
        let read = reads.mark(claim_seq).await.expect("free");
        assert_eq!(read.is_doubtful(), is_doubtful, "read with {claim_seq}");
        read.settled();
    }
    let end = Instant::now() + Duration::from_secs(30);
    for (claim_seq, is_doubtful) in [(1, true), (2, true), (3, true), (4, false)] {
        let claimed = reads.in_flight.mark_claimed(reads.id, Fence::new(7, 1, claim_seq), end, None, end).await.expect("free");
        assert_eq!(claimed.is_doubtful(), is_doubtful, "claimed as {claim_seq}");
        claimed.settled();
    }
}
