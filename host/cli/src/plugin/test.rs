//! `outbox plugin test`: the rules that every plugin keeps, and the cases of its author.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use outbox::conformance::{self, CaseReport, Finding, Report, RuleReport, Verdict};
use outbox::wasm::MemoryState;

use crate::candidate::Guise;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::output::{self, Colour, Format, count, paint, shown};

/// Test a component file against the rules for every plugin and your own test cases; exits with 8 when one fails
///
/// Calls the plugin a few hundred times with events of every kind. Needs no database and no network: requests, messages,
/// emitted events and state never leave the test.
///
/// Cases are TOML or JSON: [[case]] with a name, an event (event_type, aggregate_type, aggregate_id, tenant_id, headers,
/// attempt, and payload, payload_text, payload_base64 or payload_file), config, secrets and state as the plugin finds them, and
/// expect: the answer (done, retry-after, dead, retryable, retryable-after, unrecoverable, failure), after, text, code, and the
/// effects emitted, state, log, requests (method, url, headers, body) and messages (sink, id, subject, key, content_type, headers,
/// body). Fields missing from expect are ignored. JSON bodies are compared only on the given fields.
///
/// Each request and message needs a reply in its case: http = [{ method, url, and status, headers and body, or unavailable =
/// "why" }], publish = [{ sink, and nothing more when it is confirmed, or rejected = "why", or unavailable = "why" }].
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox plugin test plugins/order-mailer.wasm\n  \
                        outbox plugin test build/order-mailer.wasm --cases cases/ --output junit\n  \
                        outbox plugin test build/fix.wasm --as order-mailer --manifest order-mailer.toml")]
pub(crate) struct Test {
    /// The component file
    file: PathBuf,
    /// A file of test cases, or a directory of such files
    #[arg(long, value_name = "PATH")]
    cases: Option<PathBuf>,
    #[command(flatten)]
    guise: Guise,
    /// The output format: human, json or junit
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    output: Shape,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Shape {
    /// For people.
    #[default]
    #[value(alias = "table")]
    Human,
    /// One JSON document.
    Json,
    /// JUnit XML.
    Junit,
}

impl Test {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let cases = match &self.cases {
            Some(path) => conformance::read_cases(path).map_err(|error| {
                let exit = if path.exists() { Exit::Usage } else { Exit::NotFound };
                Failure::new(exit, "the cases cannot be tried").because(error)
            })?,
            None => Vec::new(),
        };
        self.guise.check_name(&self.file, config, &[])?;
        let host = self.guise.load(&self.file, config, Arc::new(MemoryState::default())).await?;
        let report = conformance::check(&host, &cases).await;
        match self.output {
            Shape::Human => output::print(&for_people(&report))?,
            Shape::Json => output::one(&report, Format::Json, |_| String::new())?,
            Shape::Junit => output::print(&report.junit())?,
        }
        // The report has told what is wrong.
        if report.passed() { Ok(()) } else { Err(Failure::silent(Exit::Findings)) }
    }
}

fn for_people(report: &Report) -> String {
    let digest: String = report.digest.chars().take(12).collect();
    let mut text = format!("{} {} ({digest})\n\n", shown(&report.plugin), shown(&report.version));
    let width = report.rules.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    for RuleReport { id, promise, verdict, note, findings, advice, .. } in &report.rules {
        let note = note.as_deref().map_or_else(String::new, |note| format!(" ({note})"));
        text.push_str(&format!("{}  {id:width$}  {promise}{note}\n", word(*verdict)));
        list(&mut text, findings);
        if let Some(advice) = advice {
            text.push_str(&wrapped(advice));
        }
    }
    let mut file = None;
    for CaseReport { name, file: stands, verdict, findings, .. } in &report.cases {
        if file != Some(stands) {
            let stands = stands.as_deref().unwrap_or("cases");
            text.push_str(&format!("\n{}\n", shown(stands)));
        }
        file = Some(stands);
        text.push_str(&format!("{}  {}\n", word(*verdict), shown(name)));
        list(&mut text, findings);
    }
    let of = |verdict| report.count(verdict);
    text.push_str(&format!(
        "\n{} passed, {} failed, {} skipped; {}\n",
        of(Verdict::Passed),
        of(Verdict::Failed),
        of(Verdict::Skipped),
        count(report.calls, "call")
    ));
    text
}

fn word(verdict: Verdict) -> std::borrow::Cow<'static, str> {
    match verdict {
        Verdict::Passed => paint("ok  ", Colour::Green),
        Verdict::Failed => paint("FAIL", Colour::Red),
        Verdict::Skipped => paint("skip", Colour::Faint),
    }
}

/// The most findings that are listed of one rule: the first few tell what the others do.
const LISTED: usize = 5;

fn list(text: &mut String, findings: &[Finding]) {
    for Finding { at, found, expected } in findings.iter().take(LISTED) {
        text.push_str(&format!("        {}\n", shown(at)));
        match expected {
            Some(expected) => {
                text.push_str(&format!("          expected: {}\n          got:      {}\n", shown(expected), shown(found)));
            }
            None => text.push_str(&format!("          {}\n", shown(found))),
        }
    }
    if findings.len() > LISTED {
        text.push_str(&format!("        and {} more; --output json lists all\n", findings.len() - LISTED));
    }
}

/// A paragraph below a finding.
fn wrapped(paragraph: &str) -> String {
    const WIDTH: usize = 100;
    let (mut text, mut line) = (String::new(), String::new());
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() >= WIDTH {
            text.push_str(&format!("        {line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("        {line}\n"));
    text
}
