//! `outbox sinks`: where events go without a plugin.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::Subcommand;
use outbox::Envelope;
use outbox::event::Event;
use outbox::sink::{Message, SinkConfig, SinkError, Sinks};
use outbox::wording::nearest;
use serde::Serialize;

use crate::config::{Config, FILE, Settings};
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, shown};

#[derive(Subcommand, Debug)]
pub(crate) enum SinksCommand {
    /// List the sinks with their kind, target, and the routes relayed to them
    #[command(after_help = "Example:\n  outbox sinks list --output json")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Send one message to a sink and wait for its confirmation; exits with 5 when the sink cannot be reached, 1 when it
    /// refuses the message
    ///
    /// The message is real: consumers of the sink will see it. Its event type is OutboxSinkTest, its aggregate type OutboxTest.
    #[command(after_help = "Example:\n  outbox sinks test orders --subject orders.test")]
    Test {
        /// The name of the sink
        name: String,
        /// The subject, stream, topic, routing key or path to send to; default the one in the sink's configuration
        #[arg(long)]
        subject: Option<String>,
    },
}

/// One sink, as `outbox sinks list` shows it.
#[derive(Serialize)]
struct Listed {
    name: String,
    kind: &'static str,
    /// Where it leads to, without credentials.
    target: String,
    /// What is relayed to it.
    routes: Vec<String>,
}

impl SinksCommand {
    pub(crate) async fn run(self, settings: &Settings) -> Result<(), Failure> {
        let config = &settings.config;
        match self {
            Self::List { output } => list(config, output),
            Self::Test { name, subject } => test(settings, &name, subject).await,
        }
    }
}

fn list(config: &Config, output: Output) -> Result<(), Failure> {
    let relays = config.relays();
    let to = |name: &str| relays.iter().filter(|(_, relay)| relay.sink == name).map(|(route, _)| route.to_string()).collect();
    let listed =
        |(name, sink): (String, SinkConfig)| Listed { routes: to(&name), kind: sink.kind(), target: sink.target(), name };
    let sinks: Vec<Listed> = config.sinks().into_iter().map(listed).collect();
    output::many(&sinks, output.output, |sinks| {
        if sinks.is_empty() {
            return String::new();
        }
        let rows = sinks.iter().map(|sink| {
            let routes = if sink.routes.is_empty() { "-".to_owned() } else { shown(&sink.routes.join(", ")).into_owned() };
            [sink.name.clone(), sink.kind.to_owned(), shown(&sink.target).into_owned(), routes]
        });
        output::table(&["name", "kind", "target", "routes"], rows)
    })?;
    if sinks.is_empty() {
        eprintln!("there are no sinks; add a section [sinks.NAME] to outbox.toml");
    }
    Ok(())
}

async fn test(settings: &Settings, name: &str, subject: Option<String>) -> Result<(), Failure> {
    let mut configs = settings.config.sinks();
    let Some(of) = configs.remove(name) else {
        return Err(unknown(name, configs.keys(), settings.file.as_deref()));
    };
    let (kind, target) = (of.kind(), of.target());
    let sinks = Sinks::connect(&[(name.to_owned(), of)].into());
    let sinks = sinks.map_err(|error| Failure::new(Exit::Config, format!("the sink {name} cannot be made")).because(error))?;
    let sink = sinks.get(name).expect("it was made just now");
    let envelope = Envelope::new("OutboxSinkTest").aggregate("OutboxTest", "test").json(&serde_json::json!({ "test": true }));
    let event = Arc::new(Event::of(envelope.expect("a message of ours")).build());
    let trusts_subject = subject.is_some();
    let message = Message { subject: subject.unwrap_or_default(), trusts_subject, ..Message::of_event(&event) };
    let started = Instant::now();
    let answer = sink.send(std::slice::from_ref(&message)).await.into_iter().next();
    match answer {
        Some(Ok(())) => {
            let took = started.elapsed().as_millis();
            eprintln!("{name} ({kind}, {target}) confirmed the message {} after {took} ms", message.id);
            Ok(())
        }
        Some(Err(error @ (SinkError::Rejected { .. } | SinkError::Denied { .. }))) => {
            Err(Failure::new(Exit::Failed, format!("{name} ({kind}, {target}) refused the message")).because(error))
        }
        Some(Err(error)) => {
            let what = format!("{name} ({kind}, {target}) did not confirm the message");
            Err(Failure::new(Exit::Unreachable, what).because(error))
        }
        None => Err(Failure::new(Exit::Failed, format!("{name} ({kind}, {target}) gave no answer"))),
    }
}

/// What is said of a sink that is not there; sinks are defined in the file of the configuration.
pub(crate) fn unknown<'n>(name: &str, known: impl Iterator<Item = &'n String>, file: Option<&Path>) -> Failure {
    let known: Vec<&str> = known.map(String::as_str).collect();
    if let Some(meant) = nearest(name, known.iter().copied()) {
        let what = format!("there is no sink `{}`; did you mean `{meant}`?", shown(name));
        return Failure::new(Exit::NotFound, what).detail("`outbox sinks list` shows all sinks".to_owned());
    }
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("the sinks are: {}", known.join(", ")) };
    let file = file.unwrap_or(Path::new(FILE)).display();
    let name = shown(name);
    let fix = format!("sinks are defined in {file}: add a section [sinks.{name}]; `outbox sinks list` shows them");
    Failure::new(Exit::NotFound, format!("there is no sink `{name}`; {known}")).details(vec![fix])
}

/// Makes the sinks of a configuration, which was checked when it was read.
pub(crate) fn connect(config: &Config) -> Sinks {
    Sinks::connect(&config.sinks()).unwrap_or_else(|error| {
        // A file that it names may have gone since.
        tracing::error!(%error, "the sinks cannot be made; their relays fail");
        Sinks::default()
    })
}
