//! The servers' programs: where they are, and as whom they run.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Fault;

/// Where Debian puts servers, which are not meant to be typed.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// The program of this name: on the PATH, or where Debian puts it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path())
        .chain(SYSTEM.iter().map(PathBuf::from))
        .chain(postgres_folders())
        .map(|folder| folder.join(name).with_extension(std::env::consts::EXE_EXTENSION))
        .find(|file| file.is_file())
}

#[expect(clippy::disallowed_methods, reason = "the PATH is how a machine says where its programs are")]
fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

/// The newest version first.
fn postgres_folders() -> Vec<PathBuf> {
    let versions = fs::read_dir(POSTGRES_VERSIONS).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    versions.sort_by_key(|folder| std::cmp::Reverse(version(folder)));
    versions.iter().map(|folder| folder.join("bin")).collect()
}

fn version(folder: &Path) -> Option<u32> {
    folder.file_name().and_then(OsStr::to_str).and_then(|name| name.parse().ok())
}

/// As whom the programs of a server run: servers refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// User and group, when they are not our own.
    ids: Option<(u32, u32)>,
}

impl Account {
    /// Ourselves, whoever we are: for servers that do not mind to run as root.
    pub(crate) fn ours() -> Self {
        Self { ids: None }
    }

    /// Ourselves; but when we are root, the account that the server's package made.
    #[cfg(unix)]
    pub(crate) fn of(user: &str) -> Result<Self, Fault> {
        if process_is_root() {
            let accounts =
                fs::read_to_string("/etc/passwd").map_err(|error| Fault::file("read", "/etc/passwd".as_ref(), &error))?;
            let ids = ids(&accounts, user).ok_or_else(|| {
                Fault::new(format!("a server does not run as root, and there is no account {user}; its package makes one"))
            })?;
            return Ok(Self { ids: Some(ids) });
        }
        Ok(Self { ids: None })
    }

    #[cfg(not(unix))]
    pub(crate) fn of(_: &str) -> Result<Self, Fault> {
        Ok(Self { ids: None })
    }

    /// Makes a file or folder theirs.
    pub(crate) fn own(self, path: &Path) -> Result<(), Fault> {
        #[cfg(unix)]
        if let Some((user, group)) = self.ids {
            std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(|error| Fault::file("give away", path, &error))?;
        }
        Ok(())
    }

    /// A program, run as this account, in a folder that it may read, and in no other language or time zone than the tests'.
    pub(crate) fn command(self, name: &str, folder: &Path) -> Result<Command, Fault> {
        let program = find(name)
            .ok_or_else(|| Fault::new(format!("the program {name} is neither on the PATH nor in its usual places")))?;
        Ok(self.command_of(&program, folder))
    }

    /// The same for a program that is somewhere else.
    pub(crate) fn command_of(self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).env("LC_ALL", "C").env("TZ", "UTC").env("HOME", folder);
        #[cfg(unix)]
        if let Some((user, group)) = self.ids {
            std::os::unix::process::CommandExt::uid(&mut command, user);
            std::os::unix::process::CommandExt::gid(&mut command, group);
        }
        command
    }
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library does not tell who runs us")]
fn process_is_root() -> bool {
    // SAFETY: geteuid has no preconditions and always succeeds.
    unsafe { libc::geteuid() == 0 }
}

/// User and group of an account in the text of /etc/passwd.
fn ids(accounts: &str, user: &str) -> Option<(u32, u32)> {
    let account = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|account| account[0] == user)?;
    Some((account.get(2)?.parse().ok()?, account.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts =
            "root:x:0:0:root:/root:/bin/bash\npostgres2:x:7:8::/:/bin/sh\npostgres:x:101:105:,,,:/var/lib:/bin/bash\n";

        assert_eq!(ids(accounts, "postgres"), Some((101, 105)));
        assert_eq!(ids(accounts, "mysql"), None);
        assert_eq!(ids("postgres:x", "postgres"), None);
    }
}
