//! Finds and runs the program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use support::{Evidence, sample_languages, sample_plugins};

use crate::home::Home;

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a test rests between two looks by the program: each start of it takes processor time, which a host may need.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The name of a place's database.
const FILE: &str = "outbox.db";

/// A directory with a database of its own.
pub(crate) struct Place {
    directory: Evidence,
    url: String,
    /// What keeps a database that is no file in the directory; `None` as well when the test keeps the server itself.
    _home: Option<Home>,
}

/// What a command came to.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    /// With a migrated database: a copy of the one that the program migrates once for all tests of this process. It contains no ID of
    /// its own, only the time of the migration.
    pub(crate) fn migrated() -> Self {
        static MIGRATED: OnceLock<Vec<u8>> = OnceLock::new();
        let database = MIGRATED.get_or_init(|| {
            let place = Self::empty();
            place.ok(&["migrate", "up"]);
            let wal = place.path().join(format!("{FILE}-wal"));
            assert!(!wal.exists(), "the program has ended and left nothing in {}", wal.display());
            std::fs::read(place.path().join(FILE)).expect("the file is there")
        });
        let place = Self::empty();
        std::fs::write(place.path().join(FILE), database).expect("can be written");
        place
    }

    /// With a migrated database on a server.
    pub(crate) fn on(home: Home) -> Self {
        Self { url: home.url().to_owned(), _home: Some(home), ..Self::empty() }
    }

    /// With the database of this address, whatever is in it.
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::empty() }
    }

    /// With nothing in it.
    pub(crate) fn empty() -> Self {
        let directory = Evidence::of_this_test();
        let url = format!("sqlite:{}", directory.path().join(FILE).display());
        Self { directory, url, _home: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where its database is, for whoever stands elsewhere.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The program with these arguments, in this place.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.env("OUTBOX_DATABASE_URL", &self.url).env("NO_COLOR", "1").env_remove("RUST_LOG");
        command
    }

    /// A line as somebody types it into a shell in this place, where the program is found by its name. In a group of its own, which
    /// [`Host::signal_group`] reaches.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let path = binary().parent().expect("it is in a directory").display();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("PATH='{path}':\"$PATH\"\n{line}")]).current_dir(self.path());
        command.stdin(Stdio::null()).process_group(0).env("NO_COLOR", "1");
        command
    }

    /// Runs a command to its end, which must come in time.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments))
    }

    /// Runs a command that must end well; returns its standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "outbox {arguments:?}: {}", ended.stderr);
        ended.stdout
    }

    /// Runs a command whose standard output is one JSON document.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.ok(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("outbox {arguments:?}: {error}: {text}"))
    }

    /// Writes one order, by its id.
    pub(crate) fn order(&self, id: &str, aggregate_id: &str) {
        let of = ["--aggregate-type", "Order", "--aggregate-id", aggregate_id];
        let what = ["event", "emit", "--type", "OrderPlaced", "--payload", "{}", "--id", id];
        self.ok(&[&what[..], &of[..]].concat());
    }

    /// Changes rows as another program would, or as a host did.
    pub(crate) fn sql(&self, statement: &str) {
        let file = self.path().join(FILE);
        run(async {
            let options = SqliteConnectOptions::new().filename(file).busy_timeout(PATIENCE);
            let mut connection = options.connect().await.expect("the file is there");
            sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.expect("the statement is valid");
            connection.close().await.expect("it closes");
        });
    }

    /// One number of `outbox stats`.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = self.json(&["stats", "--output", "json"]);
        stats[name].as_u64().unwrap_or_else(|| panic!("stats have no number {name}: {stats}"))
    }

    /// Looks at a number of `outbox stats` until it is this.
    pub(crate) fn wait_for(&self, name: &str, wanted: u64) {
        let started = Instant::now();
        while self.stat(name) != wanted {
            assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: {wanted} {name}, not {}", self.stat(name));
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Looks until a running host has told the others which plugins it serves.
    pub(crate) fn wait_until_hosts_tell_of_plugins(&self) {
        let started = Instant::now();
        let listed = || self.run(&["plugin", "list", "--output", "json"]).stdout;
        while !serde_json::from_str::<serde_json::Value>(&listed()).is_ok_and(|list| list[0]["host"].is_string()) {
            assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: a host tells of its plugins");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Puts a sample plugin into the directory `plugins`.
    pub(crate) fn plugin(&self, name: &str) {
        let (plugins, file) = (self.path().join("plugins"), format!("{name}.wasm"));
        std::fs::create_dir_all(&plugins).expect("can be made");
        std::fs::copy(sample_plugins().join(&file), plugins.join(&file)).expect("can be copied");
    }

    /// Writes a project of a plugin in C here, with its toolchain.
    pub(crate) fn project(&self, name: &str) {
        self.ok(&["plugin", "new", name, "--lang", "c"]);
        let toolchains = sample_languages().join("../toolchains").canonicalize().expect("`cargo xtask languages` keeps it");
        std::os::unix::fs::symlink(toolchains, self.path().join(name).join(".venv")).expect("can be made");
    }

    /// Puts the core module of the sample in C here, as its compiler made it.
    pub(crate) fn core_module(&self, file: &str) {
        let core = sample_languages().join("../native/order-validator.core.wasm");
        std::fs::copy(core, self.path().join(file)).expect("`cargo xtask languages` has built it");
    }

    /// Starts a host with the sample plugin, and waits until it says `ready`.
    pub(crate) fn host(&self, settings: &[(&str, &str)]) -> Host {
        self.plugin("order-mailer");
        let mut command = self.command(&["run", "--plugins", "plugins", "--log", "info"]);
        command.envs(settings.iter().copied());
        let mut host = Host::of(command);
        host.wait_for_line("it says that it is ready", |line| line == "ready");
        host
    }
}

impl Ended {
    /// Runs a command to its end, which must come in time.
    pub(crate) fn of(command: Command) -> Self {
        Self::within(PATIENCE, command)
    }

    /// As [`of`](Self::of), for a command that takes long.
    pub(crate) fn within(patience: Duration, mut command: Command) -> Self {
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("the program can be started");
        let stdout = whole(child.stdout.take().expect("it is piped"));
        let stderr = whole(child.stderr.take().expect("it is piped"));
        let code = end_within(patience, &mut child, &format!("{command:?} ends")).code();
        let text = |reader: JoinHandle<String>| reader.join().expect("the program writes UTF-8");
        Self { code, stdout: text(stdout), stderr: text(stderr) }
    }
}

/// A running host, and what it said on standard error. Killed when dropped.
pub(crate) struct Host {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Host {
    /// Starts it.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program can be started");
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line of standard error that may have been seen already.
    pub(crate) fn wait_until_it_said(&mut self, fact: &str, wanted: impl Fn(&str) -> bool) {
        if !self.seen.iter().any(|line| wanted(line)) {
            self.wait_for_line(fact, wanted);
        }
    }

    /// Waits for a line of standard error.
    pub(crate) fn wait_for_line(&mut self, fact: &str, wanted: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = wanted(&line);
                    self.seen.push(line);
                    if found {
                        return;
                    }
                }
                Err(_) => panic!("expected within {PATIENCE:?}: {fact}; it said:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Waits for this many mails of the sample plugin.
    pub(crate) fn wait_for_mails(&mut self, count: usize) {
        for number in 0..count {
            self.wait_for_line(&format!("mail {number} of {count}"), |line| mailed(line).is_some());
        }
    }

    /// `kill -9`. Returns everything that it said.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.rest()
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Sends a signal to it and to all that it has started; see [`Place::shell`].
    pub(crate) fn signal_group(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args(["-s", name, "--", &group]).status().expect("kill is there");
        assert!(sent.success(), "the group takes signals");
    }

    /// Waits for its end. Returns how it ended and everything that it said.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        let status = end(&mut self.child, "the host ends");
        (status, self.rest())
    }

    fn rest(&mut self) -> Vec<String> {
        self.seen.extend(self.lines.iter());
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Nothing to do when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a program, which must come in time; kills it when it does not.
pub(crate) fn end(child: &mut Child, fact: &str) -> ExitStatus {
    end_within(PATIENCE, child, fact)
}

fn end_within(patience: Duration, child: &mut Child, fact: &str) -> ExitStatus {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        if Instant::now() > until {
            child.kill().expect("it runs still");
            child.wait().expect("it ends");
            panic!("expected within {patience:?}: {fact}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads to the end, beside everything else: a program whose output nobody takes stands still.
fn whole(mut output: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).expect("the program writes UTF-8");
        text
    })
}

/// Sends a signal by its name.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().expect("kill is there");
    assert!(sent.success(), "the host takes signals");
}

/// The id of the event that a log line of the sample plugin tells of.
pub(crate) fn mailed(line: &str) -> Option<&str> {
    let (_, mail) = line.split_once("mail from ")?;
    let (_, id) = mail.split_once("(event ")?;
    id.split_once(')').map(|(id, _)| id)
}

/// How often each event was mailed.
pub(crate) fn mails<'a>(lines: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, usize> {
    let mut mails = BTreeMap::new();
    for id in lines.into_iter().filter_map(|line| mailed(line)) {
        *mails.entry(id.to_owned()).or_default() += 1;
    }
    mails
}

/// The program that cargo built for these tests.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_outbox"))
}

/// Runs what is asynchronous in a runtime of its own, and ends what it started.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made").block_on(future)
}
