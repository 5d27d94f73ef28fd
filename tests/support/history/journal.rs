//! Lines on their way into a file, and back.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use outbox::time::{Clock, SystemClock};

use super::host_log;
use super::step::{Line, Step};

/// The record of one process, or of one task in it.
///
/// Each line is one `write` to a file opened for appending: what was recorded is there however the process ends. (Only a machine
/// that loses its power could forget it, and with it the test.)
#[derive(Debug)]
pub struct Journal {
    file: File,
    node: String,
    clock: SystemClock,
}

impl Journal {
    /// Appends to a file, which others may do at the same time.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub fn open(path: &Path, node: impl Into<String>) -> Self {
        let file = File::options().create(true).append(true).open(path);
        let file = file.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        Self { file, node: node.into(), clock: SystemClock }
    }

    /// Records a step, now.
    ///
    /// # Panics
    /// When the disk is full or gone: a record with a hole proves nothing.
    pub fn record(&self, step: Step) {
        let line = Line { at: self.clock.now().as_micros(), node: self.node.clone(), step };
        // A line of its own in any case, also behind half a line of somebody who was killed while writing.
        let text = format!("\n{}\n", serde_json::to_string(&line).expect("a line can be written as JSON"));
        (&self.file).write_all(text.as_bytes()).expect("a step can be recorded");
    }
}

/// Everything that was recorded, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct History {
    lines: Vec<Line>,
    torn: usize,
}

impl History {
    /// Takes in the file of a [`Journal`], or of several.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(&mut self, path: &Path) {
        for text in read(path).lines().filter(|text| !text.is_empty()) {
            match serde_json::from_str(text) {
                Ok(line) => self.lines.push(line),
                Err(_) => self.torn += 1,
            }
        }
        self.sort();
    }

    /// Takes in the log of a host with `--log-format json` that runs the plugin `recorder`: its calls, and none of its other lines.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read_host_log(&mut self, path: &Path, node: &str) {
        for text in read(path).lines() {
            match host_log::step(text, node) {
                Ok(Some(line)) => self.lines.push(line),
                Ok(None) => {}
                Err(_) => self.torn += 1,
            }
        }
        self.sort();
    }

    /// Takes in every journal (`*.jsonl`) of a directory.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read_all(&mut self, directory: &Path) {
        for entry in fs::read_dir(directory).expect("the directory is there").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "jsonl") {
                self.read(&entry.path());
            }
        }
    }

    /// Takes in lines that are in no file.
    pub fn extend(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.lines.extend(lines);
        self.sort();
    }

    /// Every line. Those of one moment keep the order in which they came in.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Lines that are not whole: at most one for each process that was killed while it wrote. A step of which only half was
    /// recorded was not taken yet.
    #[must_use]
    pub fn torn(&self) -> usize {
        self.torn
    }

    fn sort(&mut self) {
        self.lines.sort_by_key(|line| line.at);
    }
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolled_back(transaction: &str) -> Step {
        Step::RolledBack { transaction: transaction.to_owned() }
    }

    #[test]
    fn several_journals_in_one_file_are_read_back_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("steps.jsonl");
        std::thread::scope(|scope| {
            for node in ["a", "b", "c"] {
                let journal = Journal::open(&path, node);
                scope.spawn(move || (0..200).for_each(|number| journal.record(rolled_back(&format!("{node}/{number}")))));
            }
        });

        let mut history = History::default();
        history.read(&path);

        assert_eq!((history.lines().len(), history.torn()), (600, 0));
        assert!(history.lines().is_sorted_by_key(|line| line.at));
    }

    #[test]
    fn half_a_line_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("steps.jsonl");
        Journal::open(&path, "first").record(rolled_back("first/1"));
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        Journal::open(&path, "second").record(rolled_back("second/1"));

        let mut history = History::default();
        history.read(&path);

        assert_eq!((history.lines().len(), history.torn()), (1, 1));
        assert_eq!(history.lines()[0].step, rolled_back("second/1"));
    }

    #[test]
    fn all_journals_of_a_directory_are_read_and_nothing_else_and_put_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let line = |at, transaction| Line { at, node: "n".to_owned(), step: rolled_back(transaction) };
        let text = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
        fs::write(directory.path().join("a.jsonl"), text(&line(3, "t3")) + &text(&line(1, "t1"))).unwrap();
        fs::write(directory.path().join("b.jsonl"), text(&line(2, "t2"))).unwrap();
        fs::write(directory.path().join("host.log"), text(&line(4, "t4"))).unwrap();

        let mut history = History::default();
        history.read_all(directory.path());

        assert_eq!(history.lines(), [line(1, "t1"), line(2, "t2"), line(3, "t3")]);
    }

    #[test]
    fn the_log_of_a_host_gives_its_calls_and_tells_of_lines_that_were_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host.log");
        let call = r#"{"timestamp":"1970-01-01T00:00:02Z","plugin":"recorder","message":"{\"event_id\":\"e-1\",\"fence\":3,\"ending\":\"done\"}"}"#;
        fs::write(
            &path,
            format!("{call}\n{{\"message\":\"ready\"}}\n{}\n{}\n", &call[..call.len() - 2], &call[..call.len() - 9]),
        )
        .unwrap();

        let mut history = History::default();
        history.read_host_log(&path, "host-1");

        assert_eq!((history.lines().len(), history.torn()), (1, 2));
        assert_eq!((history.lines()[0].at, history.lines()[0].node.as_str()), (2_000_000, "host-1"));
    }
}
