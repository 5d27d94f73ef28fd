//! What a failing run leaves behind.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;

use crate::Seed;

/// A directory of one test, for its journals, logs and files: under the target directory, `test-runs/NAME-…`. Gone with this
/// value when the test passes; kept when it fails, which is then said together with the seed.
#[derive(Debug)]
pub struct Evidence {
    directory: TempDir,
}

impl Evidence {
    /// An empty directory, named after the running test.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn of_this_test() -> Self {
        let runs = target().join("test-runs");
        std::fs::create_dir_all(&runs).unwrap_or_else(|error| panic!("cannot make {}: {error}", runs.display()));
        let thread = thread::current();
        let name = thread.name().unwrap_or("test").replace("::", "-");
        let directory = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&runs);
        Self { directory: directory.expect("a directory can be made under the target directory") }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.directory.disable_cleanup(true);
        let seed = Seed::of_this_run().number();
        // As much as can be done while a panic is under way.
        let _ = std::fs::write(self.path().join("seed"), seed.to_string());
        let kept = self.path().display();
        let _ = writeln!(std::io::stderr(), "journals and logs: {kept}\nthe same choices again: OUTBOX_TEST_SEED={seed}");
    }
}

/// The target directory that this test was built in: tests lie in `target/PROFILE/deps`.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    test.ancestors().nth(3).expect("tests lie in target/debug/deps").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_leaves_its_directory_and_its_seed_and_one_that_passes_leaves_nothing() {
        let passes = Evidence::of_this_test();
        let gone = passes.path().to_owned();
        assert!(gone.file_name().unwrap().to_string_lossy().contains("a_test_that_fails_leaves"), "{}", gone.display());
        drop(passes);
        assert!(!gone.exists());

        let failing = thread::spawn(|| {
            let evidence = Evidence::of_this_test();
            std::fs::write(evidence.path().join("journal.jsonl"), "a line").unwrap();
            std::panic::panic_any(evidence.path().to_owned());
        });
        let kept = *failing.join().unwrap_err().downcast::<PathBuf>().unwrap();

        assert_eq!(std::fs::read_to_string(kept.join("journal.jsonl")).unwrap(), "a line");
        assert_eq!(std::fs::read_to_string(kept.join("seed")).unwrap(), Seed::of_this_run().number().to_string());
        std::fs::remove_dir_all(kept).unwrap();
    }
}
