//! Installing a server, so that no test is left out in silence.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fault::Fault;
use crate::workspace::run;

/// Asked by Debian's packages whether they may start a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const APT_GET: &str = "/usr/bin/apt-get";

/// Installs the server's package unless its programs are there; says so before.
pub(crate) fn ensure(name: &str, package: &str, is_installed: impl Fn() -> bool) -> Result<(), Fault> {
    if is_installed() {
        return Ok(());
    }
    if !Path::new(APT_GET).exists() {
        return Err(Fault::new(format!(
            "the tests need the programs of {name} on the PATH, and they are not there; install {name}"
        )));
    }
    if !may_install() {
        return Err(Fault::new(format!(
            "the tests need {name}, and it is not installed; type: sudo apt-get install {package}"
        )));
    }
    eprintln!("xtask: installing {package} with apt-get, without starting it as a service");
    let _policy = Policy::of_no_services()?;
    // The lists of packages are fetched only when the ones that are there, perhaps none, do not do.
    if run(&mut install(package)).is_err() {
        run(apt_get().arg("update"))?;
        run(&mut install(package))?;
    }
    match is_installed() {
        true => Ok(()),
        false => Err(Fault::new(format!("{package} is installed now, but the programs of {name} are in no usual place"))),
    }
}

fn install(package: &str) -> Command {
    let mut command = apt_get();
    command.args(["install", "--yes", "--no-install-recommends", package]);
    command
}

fn apt_get() -> Command {
    let mut command = Command::new(APT_GET);
    command.args(["--quiet", "--quiet", "--option", "Dpkg::Use-Pty=0"]).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdout(std::io::stderr()); // what xtask prints on stdout may be read by a shell
    command
}

/// Whether we are root, who owns every package.
fn may_install() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// While this value lives, no package starts a service; unless the machine has a policy of its own.
struct Policy {
    ours: bool,
}

impl Policy {
    fn of_no_services() -> Result<Self, Fault> {
        let path = Path::new(POLICY);
        if path.exists() {
            return Ok(Self { ours: false });
        }
        let policy = Self { ours: true };
        fs::write(path, "#!/bin/sh\nexit 101\n").map_err(|error| Fault::file("write", path, &error))?;
        #[cfg(unix)]
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(|error| Fault::file("make a program of", path, &error))?;
        Ok(policy)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours {
            fs::remove_file(POLICY).ok(); // if it was never written, there is nothing to remove
        }
    }
}
