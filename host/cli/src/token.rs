//! `outbox token`: tokens for the HTTP API.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use outbox::time::{Clock, SystemClock};
use outbox::units::duration;
use outbox_http::{Role, Token};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::{self, Format, Output};

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Create a token: prints the token on stdout, and a section for the host's outbox.toml on stderr
    #[command(after_help = "Examples:\n  outbox token new --name deploy --role operator\n  \
                      outbox token new --name grafana --role viewer --expires-in 90d --output json\n\n\
                      The token is shown only once: the host stores only its SHA-256. A client sends it as \
                      `Authorization: Bearer obx_…`; commands with --url read it from OUTBOX_TOKEN.\n\
                      A viewer sees everything but payloads. An operator also sees payloads, writes, replays, skips and discards \
                      events, and pauses and resumes routes. An admin also purges.")]
    New {
        /// Who uses the token; `outbox audit list` shows this name
        #[arg(long)]
        name: String,
        /// What the token allows
        #[arg(long, value_enum)]
        role: RoleArg,
        /// How long the token is valid, like 90d; default forever
        #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
        expires_in: Option<Duration>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    Viewer,
    Operator,
    Admin,
}

/// What is printed of a new token.
#[derive(Serialize)]
struct New<'t> {
    token: &'t str,
    #[serde(flatten)]
    kept: &'t Token,
    /// For outbox.toml.
    toml: &'t str,
}

impl TokenCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self::New { name, role, expires_in, output } = self;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Failure::new(
                Exit::Usage,
                "--name is empty or contains control characters; give a name that `outbox audit list` can show",
            ));
        }
        if expires_in.is_some_and(|span| span.is_zero()) {
            return Err(Failure::new(
                Exit::Usage,
                "--expires-in is 0, so the token would have expired already; write it like 90d, or leave it out for a token that \
                 never expires",
            ));
        }
        let role = match role {
            RoleArg::Viewer => Role::Viewer,
            RoleArg::Operator => Role::Operator,
            RoleArg::Admin => Role::Admin,
        };
        let expires_at = expires_in.map(|span| SystemClock.now().plus(span));
        let (token, kept) = Token::generate(name, role, expires_at);
        let toml = lines(&kept);
        output::one(&New { token: &token, kept: &kept, toml: &toml }, output.output, |new| format!("{}\n", new.token))?;
        if output.output == Format::Table {
            eprintln!(
                "# This token is shown only once; the host stores only its SHA-256. Put this section at the end of outbox.toml:\n\n{toml}"
            );
        }
        Ok(())
    }
}

fn lines(token: &Token) -> String {
    let text = |text: String| toml::Value::String(text).to_string();
    let mut lines = format!(
        "[[http.tokens]]\nname = {}\nrole = \"{}\"\nsha256 = \"{}\"\n",
        text(token.name.clone()),
        token.role,
        token.sha256
    );
    if let Some(end) = token.expires_at {
        lines.push_str(&format!("expires_at = \"{end}\"\n"));
    }
    lines
}
