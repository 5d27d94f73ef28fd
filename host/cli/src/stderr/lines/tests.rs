use std::fs::File;
use std::sync::mpsc;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

const LONG: Duration = Duration::from_secs(60);
const SMALL: usize = 32 << 10;

/// Takes nothing until its gate is opened.
struct Gated {
    gate: mpsc::Receiver<()>,
    written: mpsc::Sender<Vec<u8>>,
    /// What it says it is.
    descriptor: File,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The other end is dropped to open it.
        let _ = self.gate.recv();
        self.written.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Gated {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Reads what a queue writes, once it has opened the gate.
struct Reader {
    gate: mpsc::Sender<()>,
    written: mpsc::Receiver<Vec<u8>>,
}

impl Reader {
    fn read(self) -> impl Iterator<Item = String> {
        drop(self.gate);
        std::iter::from_fn(move || self.written.recv_timeout(LONG).ok())
            .map(|line| String::from_utf8(line).expect("it is text"))
    }
}

fn gated(room: usize) -> (Arc<Queue>, Reader) {
    let (queue, (gate, opened), (written, read)) = (Queue::new(room), mpsc::channel(), mpsc::channel());
    let descriptor = File::open("/dev/null").expect("is there");
    assert!(Queue::start(&queue, Gated { gate: opened, written, descriptor }));
    (queue, Reader { gate, written: read })
}

/// This many lines of one kilobyte each.
fn flood(queue: &Queue, lines: usize) {
    (0..lines).for_each(|number| queue.push(Priority::Low, format!("{number:1023}\n").as_bytes()));
}

#[test]
fn a_reader_that_reads_nothing_holds_up_nobody_and_warnings_are_dropped_last() {
    let (queue, reader) = gated(SMALL);
    flood(&queue, 100);
    queue.push(Priority::High, b"a warning\n");
    queue.push(Priority::Low, format!("{:1023}\n", "too much").as_bytes());
    queue.flush(Duration::from_millis(1));
    let state = queue.lock();
    assert_eq!((state.dropped, state.lines.is_empty()), (71, false), "a flush has an end");
    drop(state);

    let lines: Vec<String> = reader.read().take(31).collect();
    assert!(lines[..30].iter().enumerate().all(|(number, line)| line.trim() == number.to_string()), "the first come first");
    assert_eq!(lines[30], "a warning\n");
}

#[test]
fn lines_come_in_their_order_and_a_flush_waits_for_the_last() {
    let (queue, reader) = gated(ROOM);
    let wanted: Vec<String> = (0..5_000).map(|number| format!("{number}\n")).collect();
    wanted.iter().for_each(|line| queue.push(Priority::Low, line.as_bytes()));
    let Reader { gate, written } = reader;
    drop(gate);
    queue.flush(LONG);
    let state = queue.lock();
    assert!((state.lines.len(), state.bytes, state.dropped) == (0, 0, 0) && !state.writing);
    drop(state);
    assert_eq!(written.try_iter().map(|line| String::from_utf8(line).expect("it is text")).collect::<Vec<_>>(), wanted);
}

#[test]
fn what_was_dropped_is_said_when_somebody_reads_again() {
    let (queue, reader) = gated(SMALL);
    // For all threads of this test program: the one that writes has no other way to speak.
    let notices = Targets::new().with_target(NOTICE, Level::WARN);
    let layer =
        tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Lines::Queued(queue.clone())).with_filter(notices);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).expect("no other test sets it");
    flood(&queue, 100);
    let notices = reader.read().filter(|line| line.contains("log lines were dropped"));
    // The queue of another test may have something to say, here, before.
    let dropped =
        |line: &String| ["69", "70", "71", "72"].iter().any(|number| line.trim_end().ends_with(&format!("dropped={number}")));
    assert!(notices.take(2).any(|line| dropped(&line)), "each queue says what it dropped");
}
