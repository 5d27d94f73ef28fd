//! `outbox plugin dev`: builds at every save, and shows what becomes of an event.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use outbox::event::StateWrite;
use outbox::listener::{FailureKind, Outcome};
use outbox::wasm::{CallReport, MemoryState, Outside, PluginHost};
use outbox::{Envelope, Event};

use super::build::Project;
use super::sources::Sources;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::output::{self, Colour, paint, shown};
use crate::plugins;
use crate::stop::Stop;

/// Bytes of a payload or a value that are shown.
const SHOWN: usize = 200;

/// Rebuild a plugin project at every save, deliver a sample event to it, and show the result
///
/// Shows the plugin's answer, log lines, HTTP requests, messages, emitted events and state, and what the call cost. HTTP
/// requests are answered with 200 and an empty body, and messages are confirmed, but neither is sent. State is kept in memory
/// until the command ends. Needs no database. Press Ctrl-C to stop.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  outbox plugin dev\n  outbox plugin dev order-mailer --event order-mailer/fixtures/paid.json"
)]
pub(crate) struct Dev {
    /// The project's folder
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// A file of events to deliver, in the format of `event emit --jsonl`; default fixtures/event.json in the project
    #[arg(long, value_name = "FILE")]
    event: Option<PathBuf>,
}

impl Dev {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let mut stop = Stop::listen()?;
        let project = Arc::new(Project::of(&self.dir, None, None)?);
        let events = self.event.unwrap_or_else(|| self.dir.join("fixtures/event.json"));
        let mut sources = Sources::watch(&self.dir, &events)?;
        let state = MemoryState::default();
        loop {
            let round = async {
                sources.note();
                attempt(&project, &events, &state, config).await;
                eprintln!("\n{}", paint("waiting for a change; press Ctrl-C to stop", Colour::Faint));
                sources.changed().await;
            };
            tokio::select! {
                () = round => {}
                () = stop.wait() => return Ok(()),
            }
        }
    }
}

/// Builds and tries once; a fault is shown, and fixed by the next save.
async fn attempt(project: &Arc<Project>, events: &Path, state: &MemoryState, config: &Config) {
    if let Err(failure) = tried(project, events, state, config).await {
        failure.report();
    }
}

async fn tried(project: &Arc<Project>, events: &Path, state: &MemoryState, config: &Config) -> Result<(), Failure> {
    eprintln!("building {} in {}", project.out.display(), project.language.name());
    let (builder, settings) = (project.clone(), plugins::settings(config));
    let built = tokio::task::spawn_blocking(move || builder.build()).await;
    let bytes = built.map_err(|error| Failure::new(Exit::Failed, "the build was interrupted").because(error))??;
    let host = PluginHost::from_file(&project.out, &settings, Arc::new(state.clone()))
        .await
        .map_err(|error| Failure::new(Exit::Findings, "the plugin was built, but it cannot be loaded").because(error))?;
    let description = host.description();
    eprintln!(
        "{} {} is loaded: {}, answers {}",
        shown(host.name()),
        shown(&description.version),
        output::whole_size(bytes as u64),
        output::routes(host.routes())
    );
    for (number, envelope) in (1..).zip(read(events)?) {
        let event = Event::of(envelope).sequence(number).build();
        let route = event.route().to_string();
        let report = host.call(event).await;
        if let (true, Some(changes)) = (report.outcome.is_answer(), &report.effects.state) {
            state.apply(changes);
        }
        output::print(&format!("\n{} {}\n{}", paint("event", Colour::Faint), shown(&route), for_people(&host, &report)))?;
    }
    Ok(())
}

/// The events of a file: one envelope, or one a line.
fn read(file: &Path) -> Result<Vec<Envelope>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let what = format!("the event {} cannot be read; name another one with --event", file.display());
        Failure::unreadable(what, error, Exit::Failed)
    })?;
    // One that is laid out over several lines is one.
    let whole = Envelope::from_json(text.trim().as_bytes()).map(|envelope| vec![envelope]);
    let lines =
        || text.lines().filter(|line| !line.trim().is_empty()).map(|line| Envelope::from_json(line.as_bytes())).collect();
    let events: Result<Vec<_>, _> = whole.or_else(|error| if text.trim().lines().count() > 1 { lines() } else { Err(error) });
    events.map_err(|error| Failure::new(Exit::Config, format!("{} contains no event", file.display())).because(error))
}

fn for_people(host: &PluginHost, report: &CallReport) -> String {
    let mut text = String::new();
    let mut line =
        |name: &str, value: String| text.push_str(&format!("  {} {value}\n", paint(&format!("{name:8}"), Colour::Faint)));
    let (colour, answer) = answer(&report.outcome);
    line("answer", paint(&answer, colour).into_owned());
    for said in &report.lines {
        let fields: String = said.fields.iter().map(|(key, value)| format!(" {}={}", shown(key), shown(value))).collect();
        let level = format!("{:?}", said.level).to_lowercase();
        line("log", format!("{level:5} {}{fields}", shown(&said.message)));
    }
    if report.lines_dropped > 0 {
        line("log", format!("and {} more lines, beyond what one call may log", report.lines_dropped));
    }
    for call in &report.outside {
        match call {
            Outside::HttpRequest { method, url, body, .. } => {
                let sent = format!("{} {}", shown(method), short(&host.hide(url)));
                line("request", format!("{sent} {}; not sent, answered 200 here", size(body)));
            }
            Outside::Message { sink, subject, body, .. } => {
                let subject = if subject.is_empty() { String::new() } else { format!(" {}", short(&host.hide(subject))) };
                line("message", format!("{}{subject} {}; not sent, confirmed here", shown(sink), size(body)));
            }
            // Answered by the state that is kept in memory here.
            _ => {}
        }
    }
    for emitted in &report.effects.emitted {
        let (route, payload) = (emitted.route().to_string(), String::from_utf8_lossy(emitted.payload_bytes()).into_owned());
        line("emitted", format!("{} {}", shown(&route), short(&payload)));
    }
    for (key, change) in report.effects.state.iter().flat_map(|state| &state.keys) {
        match &change.write {
            Some(StateWrite::Set(value)) => {
                line("state", format!("{} = {}", shown(key), short(&String::from_utf8_lossy(value))))
            }
            Some(StateWrite::Delete) => line("state", format!("{} is gone", shown(key))),
            None => {}
        }
    }
    for refused in &report.refused {
        line("refused", format!("{}: {}", shown(&refused.what), shown(&refused.advice)));
    }
    let took = Duration::from_micros(u64::try_from(report.took.as_micros()).unwrap_or(u64::MAX));
    line(
        "cost",
        format!(
            "{took:?}, {} fuel, {} of memory, {} of the host",
            output::number(report.used.fuel),
            output::size(report.used.memory_bytes),
            output::count(report.used.host_calls.into(), "call")
        ),
    );
    text
}

fn answer(outcome: &Outcome) -> (Colour, String) {
    match outcome {
        Outcome::Done => (Colour::Green, "done".to_owned()),
        Outcome::RetryAfter(delay) => (Colour::Yellow, format!("retry after {delay:?}, not counted")),
        Outcome::Dead(reason) => (Colour::Red, format!("dead: {}", shown(reason))),
        Outcome::Failed(failure) => {
            let what = match failure.kind {
                FailureKind::Retryable => "failed; it would be tried again".to_owned(),
                FailureKind::RetryableAfter(delay) => format!("failed; it would be tried again after {delay:?}"),
                FailureKind::Unrecoverable => "failed for good".to_owned(),
            };
            (Colour::Red, format!("{what}: {}", shown(&failure.to_string())))
        }
        Outcome::Unroutable(why) => (Colour::Red, format!("not answered: {}", shown(why))),
        Outcome::Busy { after, reason } => {
            (Colour::Yellow, format!("not called: {reason}; it would be asked again after {after:?}"))
        }
    }
}

fn size(body: &[u8]) -> String {
    output::size(u64::try_from(body.len()).unwrap_or(u64::MAX))
}

fn short(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", shown(&cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_event_or_one_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("event.json");
        let count = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(&file).map(|events| events.len()).map_err(|failure| failure.message().to_owned())
        };

        assert_eq!(count("{\n  \"event_type\": \"A\",\n  \"payload\": 1\n}\n"), Ok(1));
        assert_eq!(count("{\"event_type\":\"A\",\"payload\":1}\n\n{\"event_type\":\"B\",\"payload\":2}\n"), Ok(2));
        assert!(count("{}").unwrap_err().contains("contains no event"));
    }
}
