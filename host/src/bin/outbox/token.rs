//! `outbox token`: tokens for the HTTP API.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use outbox::http::{Role, Token};
use outbox::time::{Clock, SystemClock};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::{self, Format, Output};

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Make a token: prints it once, on stdout; what belongs into outbox.toml, on stderr
    #[command(after_help = "Examples:\n  outbox token new --name deploy --role operator\n  \
                      outbox token new --name grafana --role viewer --expires-in 90d --output json\n\n\
                      The host keeps the SHA-256 of the token only. A client sends it as `Authorization: Bearer obx_…`.\n\
                      viewer: look at everything but payloads. operator: also payloads; write, replay, skip and discard events; pause\n\
                      and resume routes. admin: also purge.")]
    New {
        /// Who uses it; `outbox audit list` shows this name
        #[arg(long)]
        name: String,
        /// What its bearer may do
        #[arg(long, value_enum)]
        role: RoleArg,
        /// After how long it stops being valid
        #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
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
                "--name is empty or has control characters; the audit shows it, so write a name",
            ));
        }
        let role = match role {
            RoleArg::Viewer => Role::Viewer,
            RoleArg::Operator => Role::Operator,
            RoleArg::Admin => Role::Admin,
        };
        let expires_at = expires_in.map(|span| SystemClock::default().now().plus(span));
        let (token, kept) = Token::generate(name, role, expires_at);
        let toml = lines(&kept);
        output::one(&New { token: &token, kept: &kept, toml: &toml }, output.output, |new| format!("{}\n", new.token))?;
        if output.output == Format::Table {
            eprintln!("this token is shown once; the host keeps its SHA-256 alone. Add these lines to outbox.toml:\n\n{toml}");
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
