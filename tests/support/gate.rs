//! A place in a host where it can be met: killed, or stopped.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The moments in an event's life at which whatever is not stored can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Its row is in an open transaction.
    Inserted,
    /// It is committed, and not yet in the hot queue.
    Committed,
    /// It is committed, and in the hot queue as far as there was room.
    HandedOver,
    /// It was claimed and its turn has come; its listener is not called yet.
    Claimed,
    /// Its listener was called and has done nothing.
    Began,
    /// Its listener has done everything and not answered yet.
    Ended,
    /// Its listener has answered; the outcome is not stored.
    Answered,
    /// The outcome is stored.
    Settled,
}

impl Moment {
    /// All of them, in the order in which they come.
    pub const ALL: [Self; 8] = [
        Self::Inserted,
        Self::Committed,
        Self::HandedOver,
        Self::Claimed,
        Self::Began,
        Self::Ended,
        Self::Answered,
        Self::Settled,
    ];
}

/// Holds whoever passes one moment for the nth time: it makes a file, which says that it is there, and stays until that file is
/// gone. Everything else in its process goes on.
#[derive(Debug)]
pub struct Gate {
    moment: Option<Moment>,
    left: AtomicUsize,
    file: PathBuf,
}

/// How often it looks whether the file is gone.
const LOOKS: Duration = Duration::from_millis(2);

impl Gate {
    /// Holds the passage number `passage`, from 1, through this moment; nobody, without a moment.
    #[must_use]
    pub fn at(moment: Option<Moment>, passage: usize, file: PathBuf) -> Self {
        Self { moment, left: AtomicUsize::new(passage), file }
    }

    /// Holds nobody.
    #[must_use]
    pub fn open() -> Self {
        Self::at(None, 0, PathBuf::new())
    }

    /// Passes a moment.
    pub async fn pass(&self, moment: Moment) {
        if self.holds(moment) {
            while self.file.exists() {
                tokio::time::sleep(LOOKS).await;
            }
        }
    }

    /// Passes a moment where nothing can be awaited.
    pub fn pass_blocking(&self, moment: Moment) {
        if self.holds(moment) {
            while self.file.exists() {
                std::thread::sleep(LOOKS);
            }
        }
    }

    /// Whether anybody may still be held at this moment.
    #[must_use]
    pub fn waits_for(&self, moment: Moment) -> bool {
        self.moment == Some(moment) && self.left.load(Ordering::SeqCst) > 0
    }

    fn holds(&self, moment: Moment) -> bool {
        if self.moment != Some(moment) {
            return false;
        }
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let holds = before == Ok(1);
        if holds {
            make(&self.file);
        }
        holds
    }
}

fn make(file: &Path) {
    std::fs::write(file, b"here").unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{eventually, in_time};

    #[tokio::test]
    async fn the_third_passage_is_held_until_its_file_is_gone_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gate");
        let gate = Arc::new(Gate::at(Some(Moment::Began), 3, file.clone()));
        gate.pass(Moment::Began).await;
        gate.pass_blocking(Moment::Began);
        gate.pass(Moment::Ended).await;
        assert!(!file.exists() && gate.waits_for(Moment::Began) && !gate.waits_for(Moment::Ended));

        let held = tokio::spawn({
            let gate = gate.clone();
            async move { gate.pass(Moment::Began).await }
        });
        eventually("somebody is held", async || file.exists()).await;
        assert!(!held.is_finished() && !gate.waits_for(Moment::Began));
        gate.pass(Moment::Began).await;
        assert!(!held.is_finished());
        std::fs::remove_file(&file).unwrap();
        in_time("it goes on", held).await.unwrap();

        Gate::open().pass(Moment::Began).await;
    }
}
