//! The address of a database, read again while the program runs: a file is replaced, a token expires.

use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use outbox::store::AddressSource;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::database::DatabaseConfig;
use super::{environment, layers};

/// How long a password that a command printed is used for new connections: cloud providers' tokens are valid for 15 minutes or more.
const VALID_FOR: Duration = Duration::from_secs(600);
/// How long the command is left alone when it has failed, or the server has refused what it printed.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// How long the command may take.
const LONGEST: Duration = Duration::from_secs(10);
/// The most bytes that it may print. Tokens have a few thousand.
const MOST_BYTES: u64 = 64 << 10;

/// An address of which parts are in files, or whose password a command prints.
pub(crate) struct ChangingAddress {
    /// The parts of the address, before they were put together.
    parts: DatabaseConfig,
    /// The keys of the parts that refer to a file, and what is written there.
    written: Vec<(&'static str, String)>,
    /// The last result of the command, and when it ended.
    printed: Mutex<Option<(Instant, Result<String, String>)>>,
}

impl ChangingAddress {
    /// `written` tells what is written for a part. `None` if the address does not change.
    pub(super) fn of(parts: &DatabaseConfig, written: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let written = ["url", "user", "password", "host", "name"].into_iter().filter_map(|part| Some((part, written(part)?)));
        let written: Vec<_> = written.filter(|(_, text)| text.contains("${file:")).collect();
        let changes = !written.is_empty() || parts.password_command.is_some();
        changes.then(|| Self { parts: parts.clone(), written, printed: Mutex::default() })
    }

    /// A file may be on a disk that hangs.
    async fn read_files(&self) -> Result<DatabaseConfig, String> {
        let (parts, written) = (self.parts.clone(), self.written.clone());
        let reading = tokio::task::spawn_blocking(|| Self::with_files(parts, written));
        let read = tokio::time::timeout(LONGEST, reading).await;
        let read = read.map_err(|_| format!("a file of [database] could not be read within {} s", LONGEST.as_secs()))?;
        read.map_err(|error| error.to_string())?
    }

    fn with_files(mut parts: DatabaseConfig, written: Vec<(&'static str, String)>) -> Result<DatabaseConfig, String> {
        for (part, text) in written {
            let text = layers::expand(&text, &environment::reference).map_err(|why| format!("database.{part}: {why}"))?;
            // Caught while it was written.
            if text.trim().is_empty() {
                return Err(format!("database.{part}: its file is empty"));
            }
            match part {
                "url" => parts.url = text,
                "user" => parts.user = Some(text),
                "password" => parts.password = Some(text),
                "host" => parts.host = Some(text),
                _ => parts.name = Some(text),
            }
        }
        Ok(parts)
    }

    /// The password that the command prints; the last one while that is valid.
    async fn printed(&self, command: &[String], is_refused: bool) -> Result<String, String> {
        let mut printed = self.printed.lock().await;
        if let Some((at, password)) = &*printed
            && at.elapsed() < if is_refused || password.is_err() { REFUSED_FOR } else { VALID_FOR }
        {
            return password.clone();
        }
        let password = printed_by(command).await;
        *printed = Some((Instant::now(), password.clone()));
        password
    }
}

#[async_trait]
impl AddressSource for ChangingAddress {
    async fn address(&self, is_refused: bool) -> Result<String, String> {
        let mut parts = self.read_files().await?;
        if let Some(command) = parts.password_command.take() {
            parts.password = Some(self.printed(&command, is_refused).await?);
        }
        parts.put_parts_into_url().map_err(|faults| faults.join("; "))?;
        Ok(parts.url)
    }
}

/// The output of a command, without the line break at its end. No error repeats its output.
async fn printed_by(command: &[String]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("database.password_command is empty")?;
    let fault = |why: String| format!("database.password_command: `{program}` {why}; run it by hand to see more");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| fault(format!("cannot be started ({error})")))?;
    let mut stdout = child.stdout.take().expect("it is piped").take(MOST_BYTES + 1);
    let running = async {
        let mut output = Vec::new();
        stdout.read_to_end(&mut output).await.map_err(|error| fault(format!("cannot be read ({error})")))?;
        if output.len() as u64 > MOST_BYTES {
            return Err(fault(format!("prints more than {MOST_BYTES} bytes")));
        }
        let status = child.wait().await.map_err(|error| fault(format!("cannot be waited for ({error})")))?;
        if status.success() { Ok(output) } else { Err(fault(format!("failed ({status})"))) }
    };
    let output = tokio::time::timeout(LONGEST, running).await;
    let output = output.map_err(|_| fault(format!("takes longer than {} s", LONGEST.as_secs())))??;
    let text = String::from_utf8(output).map_err(|_| fault("prints output that is not UTF-8".to_owned()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(fault("prints nothing".to_owned())),
        password => Ok(password.to_owned()),
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    fn shell(text: &str) -> Vec<String> {
        ["sh", "-c", text].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn a_password_in_a_file_is_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("password");
        std::fs::write(&file, "first\n").expect("writes");
        let parts = DatabaseConfig { url: "postgres://app@db/shop".to_owned(), ..DatabaseConfig::default() };
        let written = |part: &str| (part == "password").then(|| format!("${{file:{}}}", file.display()));
        let address = ChangingAddress::of(&parts, written).expect("it may change");
        assert_eq!(address.address(false).await.as_deref(), Ok("postgres://app:first@db/shop"));

        std::fs::write(&file, "s@cond").expect("writes");

        assert_eq!(address.address(false).await.as_deref(), Ok("postgres://app:s%40cond@db/shop"));
        std::fs::write(&file, "").expect("writes");
        assert_eq!(address.address(false).await, Err("database.password: its file is empty".to_owned()));
        std::fs::remove_file(&file).expect("removes");
        assert!(address.address(false).await.is_err_and(|why| why.starts_with("database.password: ")));
        assert!(ChangingAddress::of(&parts, |_| Some("plain".to_owned())).is_none());
    }

    #[tokio::test]
    async fn a_command_runs_again_once_its_password_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let runs = directory.path().join("runs");
        let command = shell(&format!("echo x >> {0}; wc -l < {0}", runs.display()));
        let parts = DatabaseConfig {
            url: "postgres://app@db/shop".to_owned(),
            password_command: Some(command),
            ..DatabaseConfig::default()
        };
        let address = ChangingAddress::of(&parts, |_| None).expect("it may change");
        assert_eq!(address.address(false).await.as_deref(), Ok("postgres://app:1@db/shop"));
        assert_eq!(address.address(false).await.as_deref(), Ok("postgres://app:1@db/shop"), "it is valid");
        address.printed.lock().await.as_mut().expect("it has printed").0 -= REFUSED_FOR;

        assert_eq!(address.address(false).await.as_deref(), Ok("postgres://app:1@db/shop"), "it is valid still");
        assert_eq!(address.address(true).await.as_deref(), Ok("postgres://app:2@db/shop"));
        address.printed.lock().await.as_mut().expect("it has printed").0 -= VALID_FOR;
        assert_eq!(address.address(false).await.as_deref(), Ok("postgres://app:3@db/shop"));
    }

    #[tokio::test]
    async fn a_command_that_has_failed_is_left_alone_for_a_while() {
        let directory = tempfile::tempdir().expect("a directory");
        let runs = directory.path().join("runs");
        let command = shell(&format!("echo x >> {}; exit 1", runs.display()));
        let parts = DatabaseConfig {
            url: "postgres://app@db/shop".to_owned(),
            password_command: Some(command),
            ..DatabaseConfig::default()
        };
        let address = ChangingAddress::of(&parts, |_| None).expect("it may change");
        for is_refused in [false, true, false] {
            assert!(address.address(is_refused).await.is_err_and(|why| why.contains("failed (exit status: 1)")));
        }
        assert_eq!(std::fs::read_to_string(&runs).expect("it ran"), "x\n");
    }

    #[tokio::test]
    async fn a_command_that_gives_no_password_is_named_without_what_it_prints() {
        for (text, why) in [
            ("echo s3cret; echo s3cret >&2; exit 3", "failed (exit status: 3)"),
            ("head -c 70000 /dev/zero | tr '\\0' s", "prints more than 65536 bytes"),
            ("printf '\\377'", "not UTF-8"),
            ("echo s3cret >&2", "prints nothing"),
        ] {
            let error = printed_by(&shell(text)).await.expect_err(text);
            assert!(error.contains("`sh`") && error.contains(why) && !error.contains("s3cret"), "{error}");
        }
        let error = printed_by(&["/no/such/program".to_owned()]).await.expect_err("it is not there");
        assert!(error.contains("/no/such/program") && error.contains("cannot be started"), "{error}");
    }
}
