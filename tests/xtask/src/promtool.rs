//! The program that checks metrics and alert rules as Prometheus would read them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fault::Fault;
use crate::install;
use crate::workspace::environment;

/// Where the tests look for it; without this they leave its checks out where it is not installed, and say so.
pub(crate) const VARIABLE: &str = "OUTBOX_TEST_PROMTOOL";

const PROGRAM: &str = "promtool";

/// The program, installed now when it is not there; the one that the environment variable names already is left as it is.
pub(crate) fn ensure() -> Result<PathBuf, Fault> {
    if let Some(given) = environment(VARIABLE) {
        return Ok(given);
    }
    install::ensure("Prometheus", "prometheus", is_installed)?;
    Ok(PathBuf::from(PROGRAM))
}

fn is_installed() -> bool {
    let mut version = Command::new(PROGRAM);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
