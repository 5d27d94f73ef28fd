//! Outcomes that wait for rows which another program has locked.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use outbox::event::Fence;
use outbox::store::{ClaimStore, LeaseStore, SettleStore, Settled, Settlement};
use outbox::{StoreError, TransactionalStore};
use support::Database;
use tokio::task::JoinHandle;

use super::compare::agree;
use super::parts::{FenceChoice, Outcome, span};
use super::play::{Player, said};
use super::step::Step;
use super::table::Fault;
use super::tally::Met;

/// How long between two looks whether an outcome waits.
const LOOKS: Duration = Duration::from_millis(1);
/// For how long a host waits for a row, unless it is told otherwise, before it sends outcomes again.
const GIVES_UP_AFTER: Duration = Duration::from_secs(2);

/// What became of outcomes that were sent, and after how long.
type Sending = JoinHandle<(Result<u64, StoreError>, Duration)>;

impl<D: Database> Player<'_, D> {
    /// Lets hosts do something while outcomes wait for their rows.
    pub(super) async fn settle_locked(
        &mut self,
        outcomes: &[(FenceChoice, Outcome)],
        touched: bool,
        meanwhile: &[Step],
    ) -> Result<(), Fault> {
        let settled = self.outcomes(outcomes);
        let epochs = self.table.epochs.clone();
        let rows: BTreeSet<u64> =
            settled.iter().map(|settled| settled.fence.sequence).filter(|seq| self.table.rows.contains_key(seq)).collect();
        // Where there is one writer at a time, an outcome waits for all that is written meanwhile.
        let waiting = if self.one_writer || rows.is_empty() { None } else { Some(self.wait(&rows, touched, &settled).await?) };
        for step in meanwhile {
            self.order(step).await?;
        }
        let is_late = |settled: &&Settled| {
            let row = self.table.rows.get(&settled.fence.sequence);
            row.is_some_and(|row| self.table.epoch(row) != epochs[usize::from(self.table.partition(row))])
        };
        let late = settled.iter().filter(is_late).count();
        let sent = match waiting {
            Some((settling, waits)) => {
                self.unlock().await?;
                self.meets(Met::Waited, usize::from(waits));
                let (sent, after) = settling.await.map_err(|error| format!("the outcomes were not stored: {error}"))?;
                // On a busy machine what happens meanwhile may take longer than a host waits for a row.
                let gave_up = matches!(sent, Err(StoreError::Locked { .. })) && after >= GIVES_UP_AFTER;
                (!gave_up).then_some(sent)
            }
            None => {
                // As good as waited for the one writer.
                self.meets(Met::Waited, usize::from(self.one_writer));
                None
            }
        };
        let was_sent_before = sent.is_some();
        let answer = match sent {
            Some(answer) => answer,
            None => {
                self.tick().await;
                self.store.settle(&settled).await
            }
        };
        self.meets(Met::WaitedTooLong, late);
        let dropped = said("settle", answer)?;
        let judged_by =
            if was_sent_before && self.judges_when_it_begins(&settled) { epochs } else { self.table.epochs.clone() };
        let expected = self.table.settle_by(&judged_by, &settled);
        self.agree_dropped(&settled, expected, dropped)
    }

    /// Whether outcomes are judged by the epochs as they were when they were sent: by PostgreSQL, whose statement sees what was
    /// committed when it began. Rows to be deleted beside others are two statements, which begin when all rows are locked.
    fn judges_when_it_begins(&self, settled: &[Settled]) -> bool {
        let is_erased = |settled: &Settled| settled.settlement == Settlement::Erased;
        self.kind == "postgres" && settled.windows(2).all(|two| is_erased(&two[0]) == is_erased(&two[1]))
    }

    /// Locks rows in another program's transaction, and sends outcomes for them. Also says whether they wait: nothing that is
    /// fenced off has to.
    async fn wait(&mut self, rows: &BTreeSet<u64>, touched: bool, settled: &[Settled]) -> Result<(Sending, bool), Fault> {
        self.lock(rows, touched).await?;
        self.agree_passed_by(rows, settled).await?;
        self.tick().await;
        let (store, sent) = (self.store.clone(), settled.to_vec());
        let settling = tokio::spawn(async move {
            let sent_at = Instant::now();
            (store.settle(&sent).await, sent_at.elapsed())
        });
        let waiting = match self.kind {
            "postgres" => {
                "SELECT count(*) FROM pg_locks WHERE NOT granted
                   AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'outbox_event'::regclass)"
            }
            // In a database of its own nobody else is at work.
            _ => {
                "SELECT count(*) FROM information_schema.processlist
                 WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command <> 'Sleep'"
            }
        };
        loop {
            if settling.is_finished() {
                return Ok((settling, false));
            }
            if self.db.number(waiting).await > 0 {
                return Ok((settling, true));
            }
            tokio::time::sleep(LOOKS).await;
        }
    }

    async fn lock(&mut self, rows: &BTreeSet<u64>, touched: bool) -> Result<(), Fault> {
        let mut transaction = said("begin", self.store.begin().await)?;
        let connection = transaction.as_mut();
        // One by one: MySQL may read a small table from end to end for several, and wait for the rows of open transactions.
        for row in rows {
            self.db.run_on(connection, &format!("SELECT seq FROM outbox_event WHERE seq = {row} FOR UPDATE")).await;
            if touched {
                let touch = format!("UPDATE outbox_event SET content_type = content_type WHERE seq = {row}");
                self.db.run_on(connection, &touch).await;
            }
        }
        self.locker = Some(transaction);
        Ok(())
    }

    async fn unlock(&mut self) -> Result<(), Fault> {
        match self.locker.take() {
            Some(locker) => said("unlock", D::Store::commit(locker).await),
            None => Ok(()),
        }
    }

    /// Who must not wait passes by rows that somebody else has locked.
    async fn agree_passed_by(&mut self, rows: &BTreeSet<u64>, settled: &[Settled]) -> Result<(), Fault> {
        let asked: Vec<u64> = rows.iter().copied().collect();
        let mut locked = said("locked", self.store.locked(&asked).await)?;
        locked.sort_unstable();
        agree("locked by another program", &asked, &locked)?;

        let mut fences: Vec<Fence> = settled.iter().map(|settled| settled.fence).collect();
        fences.sort_unstable_by_key(|fence| (fence.sequence, fence.claim));
        fences.dedup_by_key(|fence| fence.sequence);
        let held: Vec<u64> = fences.iter().filter_map(|fence| Some(self.table.claimed(*fence)?.seq)).collect();
        let mut renewed = said("renew", self.store.renew(&fences, span(1)).await)?;
        renewed.locked.sort_unstable();
        agree("renewed though they are locked", Vec::new(), renewed.held)?;
        agree("held, but locked", held, renewed.locked)?;

        let owner = self.owner(0);
        let claimed = said("claim", self.store.claim(&owner, span(1), &fences).await)?;
        agree("claimed though they are locked", 0, claimed.len())
    }
}
