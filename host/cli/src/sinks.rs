//! `outbox sinks`: where events go without a plugin.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Subcommand;
use outbox::Envelope;
use outbox::event::Event;
use outbox::node::{HostSink, SinkOutage, SinkState, SinkStatus};
use outbox::sink::{Message, SinkConfig, SinkError, Sinks};
use outbox::time::{Clock, SystemClock, Timestamp};
use outbox::wording::nearest;
use serde::Serialize;

use crate::config::{Config, FILE, Settings, SinkFiles};
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, count, minutes_ago, or_dash, relative_to, short, shown, span};
use crate::place;

#[derive(Subcommand, Debug)]
pub(crate) enum SinksCommand {
    /// List the sinks with the routes relayed to them, their state on each running host, and the events that wait
    ///
    /// A state is working, down (with the time, the reason and the next try), or unconfirmed: no message was confirmed since the
    /// host started, or none was sent for 20 minutes after an outage. Without a running host, the configured sinks are listed without a
    /// state; with --url, only the sinks of running hosts are listed. Exits with 5 if the database or the host cannot be reached; the
    /// configured sinks are listed then, too.
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
    /// `None` if its settings refer to something that this shell lacks, and no host reports it.
    kind: Option<String>,
    /// The address that its messages go to, without credentials; `None` if the kind is.
    target: Option<String>,
    /// The routes that are relayed to it.
    routes: Vec<String>,
    /// How many more routes are relayed to it: a host reports only some of many.
    more_routes: usize,
    /// How many events wait for it; `None` if no host reports it.
    waiting: Option<u64>,
    hosts: Vec<OnHost>,
}

/// The state of a sink on one host.
#[derive(Serialize)]
struct OnHost {
    host: String,
    state: SinkState,
    /// Since when and why it is down, and when the host tries again.
    outage: Option<SinkOutage>,
    last_success: Option<Timestamp>,
    unavailable_receivers: u32,
    /// The names of the first of them: paths, nodes or topics.
    first_unavailable: Vec<String>,
}

impl SinksCommand {
    pub(crate) async fn run(self, settings: &Settings) -> Result<(), Failure> {
        let config = &settings.config;
        match self {
            Self::List { output } => list(config, output).await,
            Self::Test { name, subject } => test(settings, &name, subject).await,
        }
    }
}

async fn list(config: &Config, output: Output) -> Result<(), Failure> {
    let ((reported, now), unknown) = match reported(config).await {
        // The configuration can be listed all the same.
        Err(failure) if config.remote.is_none() => ((Vec::new(), SystemClock.now()), Some(failure)),
        reported => (reported?, None),
    };
    let mut sinks = configured(config);
    for one in reported {
        add(&mut sinks, one);
    }
    output::many(&sinks, output.output, |sinks| if sinks.is_empty() { String::new() } else { table(sinks, now) })?;
    if let Some(failure) = unknown {
        return Err(failure.detail("the list has the configured sinks; their state is unknown".to_owned()));
    }
    if sinks.is_empty() {
        eprintln!("there are no sinks; add a section [sinks.NAME] to outbox.toml");
    } else if sinks.iter().all(|sink| sink.hosts.is_empty()) {
        eprintln!("no running host reports the state of these sinks; start one with `outbox run`");
    }
    Ok(())
}

/// The sinks of the hosts that run, and the time by the database's clock, as their times are.
async fn reported(config: &Config) -> Result<(Vec<HostSink>, Timestamp), Failure> {
    let place = place::open(config).await?;
    let routes = if config.remote.is_some() { Vec::new() } else { place.routes().await? };
    Ok((place.sinks(&routes).await?, place.now().await?))
}

/// The sinks of the configuration, without a state. Sinks whose secrets this shell lacks have only their name and routes.
fn configured(config: &Config) -> Vec<Listed> {
    let relays = config.relays();
    let to = |name: &str| relays.iter().filter(|(_, relay)| relay.sink == name).map(|(route, _)| route.to_string()).collect();
    let listed = |name: String, kind, target| Listed {
        routes: to(&name),
        name,
        kind,
        target,
        more_routes: 0,
        waiting: None,
        hosts: Vec::new(),
    };
    let complete = |(name, sink): (String, SinkConfig)| listed(name, Some(sink.kind().to_owned()), Some(sink.target()));
    let incomplete = |name: &String| listed(name.clone(), None, None);
    let mut sinks: Vec<Listed> = config.sinks().into_iter().map(complete).collect();
    sinks.extend(config.incomplete_sinks.iter().map(incomplete));
    sinks.sort_by(|one, other| one.name.cmp(&other.name));
    sinks
}

/// Adds the state of a sink on one host. A sink that only hosts have is listed too.
fn add(sinks: &mut Vec<Listed>, HostSink { host, sink, waiting }: HostSink) {
    let SinkStatus {
        name,
        kind,
        target,
        state,
        outage,
        last_success,
        unavailable_receivers,
        first_unavailable,
        routes,
        more_routes,
    } = sink;
    let on_host = OnHost { host, state, outage, last_success, unavailable_receivers, first_unavailable };
    let listed = match sinks.iter().position(|listed| listed.name == name) {
        Some(position) => &mut sinks[position],
        None => {
            let routes = routes.iter().map(ToString::to_string).collect();
            sinks.push(Listed { name, kind: None, target: None, routes, more_routes, waiting: None, hosts: Vec::new() });
            sinks.last_mut().expect("it was added just now")
        }
    };
    listed.kind.get_or_insert(kind);
    listed.target.get_or_insert(target);
    listed.waiting = listed.waiting.max(Some(waiting));
    listed.hosts.push(on_host);
}

/// The sinks, and below them the state of each on each host.
fn table(sinks: &[Listed], now: Timestamp) -> String {
    let rows = sinks.iter().map(|sink| {
        [
            short(&sink.name, 64),
            sink.kind.as_deref().map_or_else(|| "-".to_owned(), |kind| short(kind, 32)),
            or_dash(sink.target.as_deref()),
            routes(sink),
            state(sink.hosts.iter().map(|on_host| on_host.state)),
            sink.waiting.map_or_else(|| "-".to_owned(), |waiting| waiting.to_string()),
        ]
    });
    let text = output::table(&["name", "kind", "target", "~routes", "state", ">waiting"], rows);
    let lines: String =
        sinks.iter().flat_map(|sink| sink.hosts.iter().map(move |on_host| line(&sink.name, on_host, now))).collect();
    if lines.is_empty() { text } else { format!("{text}\n{lines}") }
}

/// `Order/*, Invoice/Sent and 30 more`
fn routes(Listed { routes, more_routes, .. }: &Listed) -> String {
    let named = shown(&routes.join(", ")).into_owned();
    match (routes.len(), *more_routes) {
        (0, 0) => "-".to_owned(),
        (_, 0) => named,
        (0, more) => count(more as u64, "route"),
        (_, more) => format!("{named} and {more} more"),
    }
}

/// The state of a sink on all hosts, in a few words.
pub(crate) fn state(on_hosts: impl Iterator<Item = SinkState>) -> String {
    let states: Vec<SinkState> = on_hosts.collect();
    let Some(first) = states.first() else { return "-".to_owned() };
    let down = states.iter().filter(|state| **state == SinkState::Down).count();
    match down {
        0 if states.contains(&SinkState::Working) => SinkState::Working.word().to_owned(),
        0 => first.word().to_owned(),
        all if all == states.len() => SinkState::Down.word().to_owned(),
        some => format!("down on {some} of {} hosts", states.len()),
    }
}

/// `orders on web-1 4711: down for 4 min, next try in 12 s, last success 5 min ago: connection refused`
fn line(name: &str, on_host: &OnHost, now: Timestamp) -> String {
    let OnHost { host, state, outage, last_success, unavailable_receivers, first_unavailable } = on_host;
    let mut text = format!("{} on {}: {}", short(name, 64), short(host, 40), state.word());
    if let Some(outage) = outage {
        let next_try =
            if outage.next_try > now { relative_to(outage.next_try, now) } else { "with the next message".to_owned() };
        text.push_str(&format!(" for {}, next try {next_try}", span(now.since(outage.since))));
    }
    if let Some(last_success) = last_success {
        text.push_str(&format!(", last success {}", minutes_ago(*last_success, now)));
    }
    if *unavailable_receivers > 0 {
        text.push_str(&format!(", {} unavailable", count((*unavailable_receivers).into(), "receiver")));
        text.push_str(&names(*unavailable_receivers, first_unavailable));
    }
    if let Some(outage) = outage {
        text.push_str(&format!(": {}", shown(&outage.reason)));
    }
    text + "\n"
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

/// How often the files that settings of sinks refer to are read.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Lets the sinks of a host connect anew when a file changes that their settings refer to: a password that is rotated, say.
pub(crate) fn follow_files(config: &Config, sinks: &Sinks) {
    for files in &config.sink_files {
        tokio::spawn(follow(files.clone(), sinks.clone()));
    }
}

async fn follow(mut files: SinkFiles, sinks: Sinks) {
    let (sink, mut is_unread) = (files.sink.clone(), false);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // A file may be on a disk that hangs.
        let mut again = files.clone();
        let reading = tokio::task::spawn_blocking(move || (again.read_again(), again));
        let Ok((read, read_again)) = reading.await else { continue };
        let updated = match read {
            Ok(Some(reread)) if reread.connects_anew => {
                let updated = sinks.update(&sink, &reread.config).await;
                updated.map(|()| Some(reread)).map_err(|error| error.to_string())
            }
            other => other,
        };
        match updated {
            Ok(reread) => {
                (files, is_unread) = (read_again, false);
                let Some(reread) = reread else { continue };
                if reread.connects_anew {
                    tracing::info!(sink, "the settings of a sink were read again and have changed; it connects anew");
                }
                if !reread.need_restart.is_empty() {
                    let settings = reread.need_restart.join(", ");
                    tracing::warn!(
                        sink,
                        settings,
                        "settings of a sink have changed that take effect after a restart of the host"
                    );
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut is_unread, true) {
                    tracing::warn!(sink, error, "the settings of a sink cannot be read again; the last ones stay in use");
                }
            }
        }
    }
}

/// ` (acme, globex and 5 more)`: the names of so many receivers. Empty if the host names none.
fn names(receivers: u32, first: &[String]) -> String {
    let listed = shown(&first.join(", ")).into_owned();
    match u64::from(receivers).saturating_sub(first.len() as u64) {
        _ if first.is_empty() => String::new(),
        0 => format!(" ({listed})"),
        more => format!(" ({listed} and {more} more)"),
    }
}

/// Makes the sinks of a configuration.
///
/// # Errors
/// If a file that a sink refers to cannot be used, although the settings were checked when they were read.
pub(crate) fn connect(config: &Config) -> Result<Sinks, Failure> {
    Sinks::connect(&config.sinks()).map_err(|error| Failure::new(Exit::Config, "the sinks cannot be made").because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_host(state: SinkState, outage: Option<SinkOutage>) -> OnHost {
        OnHost {
            host: "web-1".to_owned(),
            state,
            outage,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
        }
    }

    #[test]
    fn the_state_of_all_hosts_is_one_short_text() {
        let text = |on_hosts: &[SinkState]| state(on_hosts.iter().copied());
        assert_eq!(text(&[]), "-");
        assert_eq!(text(&[SinkState::Unconfirmed, SinkState::Working]), "working");
        assert_eq!(text(&[SinkState::Unconfirmed]), "unconfirmed");
        assert_eq!(text(&[SinkState::Down]), "down");
        assert_eq!(text(&[SinkState::Working, SinkState::Down]), "down on 1 of 2 hosts");
    }

    #[test]
    fn routes_that_a_host_does_not_name_are_counted() {
        let mut sinks = Vec::new();
        let status = SinkStatus {
            name: "orders".to_owned(),
            kind: "nats".to_owned(),
            target: "nats://a".to_owned(),
            state: SinkState::Working,
            outage: None,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: vec![outbox::Route::new("Order", "*").unwrap()],
            more_routes: 30,
        };

        add(&mut sinks, HostSink { host: "web-1".to_owned(), sink: status, waiting: 0 });

        assert_eq!((routes(&sinks[0]).as_str(), sinks[0].more_routes), ("Order/* and 30 more", 30));
        assert_eq!(sinks[0].kind.as_deref(), Some("nats"));
    }

    #[test]
    fn unavailable_receivers_are_named() {
        let named = |unavailable_receivers, first: &[&str]| {
            let first_unavailable = first.iter().map(|name| (*name).to_owned()).collect();
            let on_host = OnHost { unavailable_receivers, first_unavailable, ..on_host(SinkState::Working, None) };
            line("hooks", &on_host, Timestamp::from_micros(0))
        };
        assert_eq!(named(1, &["acme"]), "hooks on web-1: working, 1 receiver unavailable (acme)\n");
        assert_eq!(
            named(7, &["acme", "globex"]),
            "hooks on web-1: working, 7 receivers unavailable (acme, globex and 5 more)\n"
        );
        assert_eq!(named(2, &[]), "hooks on web-1: working, 2 receivers unavailable\n");
    }

    #[test]
    fn a_line_has_the_outage_and_no_control_characters() {
        let now = Timestamp::from_micros(1_795_249_980_000_000);
        let outage = SinkOutage {
            since: now.minus(Duration::from_secs(240)),
            reason: "refused\u{1b}[31m".to_owned(),
            next_try: now.plus(Duration::from_secs(12)),
        };
        let down = OnHost { last_success: Some(now.minus(Duration::from_secs(300))), ..on_host(SinkState::Down, Some(outage)) };

        let text = line("orders", &down, now);

        let start = "orders on web-1: down for 4 min, next try in 12 s, last success 5 min ago: refused";
        assert!(text.starts_with(start) && !text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn success_of_the_last_minute_has_no_seconds() {
        let now = Timestamp::from_micros(1_795_249_980_000_000);
        let busy = OnHost { last_success: Some(now.minus(Duration::from_secs(11))), ..on_host(SinkState::Working, None) };

        assert_eq!(line("orders", &busy, now), "orders on web-1: working, last success within the last minute\n");
    }
}
