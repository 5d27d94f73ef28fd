//! What systemd hears from a host that it runs as a unit of `Type=notify`.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use tempfile::TempDir;

use crate::program::{Host, PATIENCE, Place};

/// The manager's end of `NOTIFY_SOCKET`.
struct Manager {
    socket: UnixDatagram,
    /// Short: the path of a socket has at most a hundred bytes.
    directory: TempDir,
    heard: Vec<String>,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket can be made");
        Self { socket, directory, heard: Vec::new() }
    }

    /// A host with a watchdog that must be told every 300 ms.
    fn host(&self, place: &Place, settings: &[(&str, &str)]) -> Host {
        place.plugin("order-mailer");
        let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
        command.env("NOTIFY_SOCKET", self.directory.path().join("notify")).env("WATCHDOG_USEC", "300000");
        command.envs(settings.iter().copied());
        Host::of(command)
    }

    /// Listens until this is said.
    fn wait_for(&mut self, fact: &str, wanted: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut message = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "expected within {PATIENCE:?}: {fact}; heard {:#?}", self.heard);
            self.socket.set_read_timeout(Some(left)).expect("it can be set");
            let length = match self.socket.recv(&mut message) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) => panic!("the socket is open: {error}"),
            };
            let text = String::from_utf8_lossy(&message[..length]);
            let before = self.heard.len();
            self.heard.extend(text.lines().map(str::to_owned));
            if self.heard[before..].iter().any(|state| wanted(state)) {
                return;
            }
        }
    }

    /// How often this was said.
    fn count(&self, state: &str) -> usize {
        self.heard.iter().filter(|heard| *heard == state).count()
    }
}

#[test]
fn systemd_hears_that_the_host_is_ready_that_it_lives_and_that_it_stops() {
    let place = Place::migrated();
    let mut manager = Manager::new();
    let mut host = manager.host(&place, &[]);

    manager.wait_for("it is ready", |state| state == "READY=1");
    assert_eq!(manager.count("WATCHDOG=1"), 0, "before it is ready there is nothing to tell: {:?}", manager.heard);
    host.wait_until_it_said("`ready`, before systemd hears it", |line| line == "ready");
    manager.wait_for("how it is", |state| state == "STATUS=ready");
    for _ in 0..3 {
        manager.wait_for("it lives", |state| state == "WATCHDOG=1");
    }
    host.signal("TERM");
    manager.wait_for("it stops", |state| state == "STOPPING=1");

    let (status, said) = host.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    assert_eq!((manager.count("READY=1"), manager.count("STOPPING=1")), (1, 1), "{:?}", manager.heard);
}

#[test]
fn a_watchdog_that_is_set_for_another_process_is_not_told() {
    let place = Place::migrated();
    let mut manager = Manager::new();
    let host = manager.host(&place, &[("WATCHDOG_PID", "1"), ("OUTBOX_POLLER__INTERVAL", "100ms")]);
    manager.wait_for("how it is", |state| state == "STATUS=ready");

    let order = ["--aggregate-type", "Order", "--payload", r#"{"order_id":1,"total":9.5}"#];
    place.ok(&[&["event", "emit", "--type", "OrderPlaced"], &order[..]].concat());
    place.wait_for("done", 1);
    host.signal("TERM");
    manager.wait_for("it stops", |state| state == "STOPPING=1");

    assert_eq!(manager.count("WATCHDOG=1"), 0, "{:?}", manager.heard);
    assert_eq!(host.end().0.code(), Some(0));
}

#[test]
fn a_host_that_waits_for_its_database_says_so_and_is_not_ready() {
    // Nobody listens there.
    let place = Place::at("postgres://nobody@127.0.0.1:1/nothing");
    let mut manager = Manager::new();
    let host = manager.host(&place, &[]);

    manager.wait_for("what it waits for", |state| state.starts_with("STATUS=waiting: "));
    host.signal("TERM");

    assert_eq!(host.end().0.code(), Some(130));
    assert_eq!((manager.count("READY=1"), manager.count("WATCHDOG=1")), (0, 0), "{:?}", manager.heard);
}
