//! `cargo xtask bench`: what the host can do.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use crate::child;
use crate::fault::Fault;
use crate::host::{self, Extent, Profile};
use crate::plugins;
use crate::workspace::Workspace;

/// Asks for the profile that builds soon, as the first argument; the others go to `outbox bench`.
const FAST: &str = "--fast";

/// Runs `outbox bench` over the plugin that does nothing.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let (profile, arguments) = profile(arguments);
    let noop = plugins::build_one(workspace, "noop")?;
    let outbox = host::build(workspace, profile, Extent::Whole)?;
    child::run(Command::new(outbox).arg("bench").arg("--plugin").arg(noop.path).args(arguments))
}

fn profile(arguments: &[OsString]) -> (Profile, &[OsString]) {
    match arguments {
        [first, rest @ ..] if first == FAST => (Profile::Fast, rest),
        all => (Profile::Release, all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_is_measured_unless_the_fast_profile_is_asked_for() {
        let arguments = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();

        let given = arguments(&["--fast", "--events", "9"]);
        assert_eq!(profile(&given), (Profile::Fast, &given[1..]));
        let given = arguments(&["--events", "9"]);
        assert_eq!(profile(&given), (Profile::Release, &given[..]));
    }
}
