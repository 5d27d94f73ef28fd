//! `outbox event emit`: events into the outbox, one or many.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use outbox::event::EnvelopeJsonError;
use outbox::time::Timestamp;
use outbox::units::duration;
use outbox::{Envelope, EnvelopeError, EventId};
use tokio::sync::mpsc;

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::interrupt::{Interrupt, interrupted};
use crate::output;
use crate::place::{self, Taken, Writer};

/// How many lines of a file go into one transaction.
const CHUNK: usize = 1_000;
/// The longest line: the largest payload, escaped, and room for the rest.
const MAX_LINE: u64 = 16 << 20;

/// Write events into the outbox
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("what").required(true).args(["event_type", "jsonl"]),
    group = ArgGroup::new("body").args(["payload", "payload_file", "stdin"]),
    after_help = "Examples:\n  outbox event emit --type OrderPlaced --aggregate-type Order --payload '{\"total\":99.5}'\n  \
                  outbox event emit --jsonl events.jsonl\n\n\
                  Prints the ID of each event written, one per line. If the ID exists already, the command exits \
                  with 7; with --jsonl, such events are skipped and counted. If Ctrl-C interrupts a write, the command says \
                  how to find out whether the event was written.\n\n\
                  With --url, a request that fails for a temporary reason is repeated a few times with the same IDs, so that \
                  no event is written twice."
)]
pub(crate) struct Emit {
    /// The event type, like OrderPlaced
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The aggregate type: the kind of thing the event is about, like Order
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// The aggregate's ID: which order, user or account the event is about
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// The tenant that the event belongs to
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// A header to add; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    header: Vec<(String, String)>,
    /// The event's ID instead of a generated one; makes it safe to repeat the command
    #[arg(long, value_name = "ID")]
    id: Option<EventId>,
    /// When the event happened; default now
    #[arg(long, value_name = "RFC3339")]
    occurred_at: Option<Timestamp>,
    /// Do not deliver the event before this span has passed, like 30s
    #[arg(long, value_name = "SPAN", value_parser = duration::parse, conflicts_with = "available_at")]
    deliver_after: Option<Duration>,
    /// Do not deliver the event before this time
    #[arg(long, value_name = "RFC3339")]
    available_at: Option<Timestamp>,
    /// Give the event up if it has not been delivered by this time
    #[arg(long, value_name = "RFC3339")]
    expires_at: Option<Timestamp>,
    /// The payload; JSON, unless --content-type says otherwise
    #[arg(long, value_name = "TEXT")]
    payload: Option<String>,
    /// Read the payload from this file
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Read the payload from standard input
    #[arg(value_name = "-", value_parser = ["-"])]
    stdin: Option<String>,
    /// The payload's content type, if it is not JSON
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Read many events from this file, or from standard input with `-`: one JSON envelope per line
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "aggregate_type", "aggregate_id", "tenant", "header", "id", "occurred_at", "deliver_after", "available_at",
        "expires_at", "body", "content_type",
    ])]
    jsonl: Option<PathBuf>,
    /// Validate the events, and write nothing
    #[arg(long)]
    dry_run: bool,
}

fn nothing_written() -> String {
    "nothing was written".to_owned()
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like source=shop")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Emit {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        if let Some(file) = &self.jsonl {
            return lines(file.clone(), self.dry_run, config).await;
        }
        let (dry_run, has_own_id) = (self.dry_run, self.id.is_none());
        let meant = self.probably_meant();
        let envelope = self.envelope()?;
        if dry_run {
            eprintln!("the event is valid; nothing was written");
            return Ok(());
        }
        let id = envelope.id();
        // Only from here on: a read of standard input that waits is ended by Ctrl-C itself.
        let mut interrupt = Interrupt::listen()?;
        let writer = interrupt.unless(place::writer(config), nothing_written).await?;
        let (mut is_new, mut may_be_new) = (false, false);
        let taken = |taken: Taken| {
            (is_new, may_be_new) = (!taken.new.is_empty(), !taken.may_be_new.is_empty());
            Ok(())
        };
        let written = writer.emit(vec![envelope], &mut interrupt, taken).await;
        let is_interrupted = matches!(&written, Err(failure) if failure.is_interrupted());
        if !is_interrupted {
            writer.close().await;
        }
        written.map_err(|failure| {
            if is_interrupted || config.remote.is_some() && failure.is_passing() {
                failure.detail(format!(
                    "to repeat it safely, run the same command with --id {id}; it exits with 7 if the event exists already"
                ))
            } else {
                failure
            }
        })?;
        // Nobody else has an ID that was made here.
        if !(is_new || may_be_new && has_own_id) {
            let what = format!(
                "an event with the ID {id} exists already; see {}",
                config.flags.command(&format!("outbox event show {id}"))
            );
            let doubt = may_be_new.then(|| "a request of this command whose answer was lost may have written it".to_owned());
            return Err(Failure::new(Exit::Conflict, what).details(doubt.into_iter().collect()));
        }
        if let Some(meant) = meant {
            eprintln!("{meant}");
        }
        output::print(&format!("{id}\n"))
    }

    /// What was probably meant by a type that looks like a whole route.
    fn probably_meant(&self) -> Option<String> {
        let event_type = self.event_type.as_deref().filter(|_| self.aggregate_type.is_none())?;
        let (aggregate_type, rest) = event_type.split_once('/')?;
        let (aggregate_type, rest) = (output::argument(aggregate_type), output::argument(rest));
        Some(format!(
            "the event has no aggregate type, and its type holds a slash; was --aggregate-type {aggregate_type} --type {rest} meant?"
        ))
    }

    fn envelope(self) -> Result<Envelope, Failure> {
        let mut names = BTreeSet::new();
        if let Some((name, _)) = self.header.iter().find(|(name, _)| !names.insert(name)) {
            let why = format!("--header {} is given twice; an event has one value for each name", output::argument(name));
            return Err(Failure::new(Exit::Usage, why));
        }
        let payload = self.payload_bytes()?;
        // As curl writes it.
        let file = self.payload.as_deref().and_then(|text| text.strip_prefix('@')).map(str::to_owned);
        let mut builder = Envelope::new(self.event_type.unwrap_or_default()).headers(self.header);
        if let Some(aggregate_type) = self.aggregate_type {
            builder = builder.aggregate_type(aggregate_type);
        }
        if let Some(aggregate_id) = self.aggregate_id {
            builder = builder.aggregate_id(aggregate_id);
        }
        if let Some(tenant) = self.tenant {
            builder = builder.tenant(tenant);
        }
        if let Some(id) = self.id {
            builder = builder.id(id);
        }
        if let Some(time) = self.occurred_at {
            builder = builder.occurred_at(time);
        }
        if let Some(delay) = self.deliver_after {
            builder = builder.deliver_after(delay);
        }
        if let Some(time) = self.available_at {
            builder = builder.available_at(time);
        }
        if let Some(time) = self.expires_at {
            builder = builder.expires_at(time);
        }
        Ok(match self.content_type {
            Some(content_type) => builder.bytes(content_type, payload)?,
            None => builder.json_text(payload).map_err(|error| {
                let EnvelopeError::NotJson(why) = error else { return Failure::from(error) };
                let hint = match file {
                    Some(file) => format!("`@` does not read a file; write --payload-file {}", output::argument(&file)),
                    None => "if it is not meant to be JSON, give its content type: --content-type text/plain".to_owned(),
                };
                Failure::new(Exit::Usage, format!("the payload is not JSON: {why}")).detail(hint)
            })?,
        })
    }

    fn payload_bytes(&self) -> Result<Vec<u8>, Failure> {
        let from_stdin = self.stdin.is_some() || self.payload_file.as_deref().is_some_and(|file| file.as_os_str() == "-");
        if let Some(text) = &self.payload {
            return Ok(text.clone().into_bytes());
        }
        if from_stdin {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| unreadable("standard input", error))?;
            return Ok(bytes);
        }
        match &self.payload_file {
            Some(file) => std::fs::read(file).map_err(|error| unreadable(&file.display().to_string(), error)),
            None => Err(Failure::new(Exit::Usage, "the event has no payload; give --payload TEXT, --payload-file FILE or -")),
        }
    }
}

fn unreadable(what: &str, error: std::io::Error) -> Failure {
    Failure::unreadable(format!("{what} cannot be read"), error, Exit::Failed)
}

/// Why a line is no event.
struct BadLine {
    number: u64,
    /// The fault, as it follows the number.
    fault: &'static str,
    why: Failure,
}

/// Streams a file of envelopes, a chunk a transaction.
async fn lines(file: PathBuf, dry_run: bool, config: &Config) -> Result<(), Failure> {
    let input: Box<dyn Read + Send> = if file.as_os_str() == "-" {
        if std::io::stdin().is_terminal() {
            eprintln!("reading envelopes from standard input, one JSON object per line; press Ctrl-D to finish");
        }
        Box::new(std::io::stdin())
    } else {
        if file.is_dir() {
            let what = format!("{} is a directory; give --jsonl a file with one JSON envelope per line", file.display());
            return Err(Failure::new(Exit::Usage, what));
        }
        Box::new(std::fs::File::open(&file).map_err(|error| unreadable(&file.display().to_string(), error))?)
    };
    let mut interrupt = Interrupt::listen()?;
    let writer = if dry_run { None } else { Some(interrupt.unless(place::writer(config), nothing_written).await?) };
    let (sender, mut chunks) = mpsc::channel(2);
    // A thread of its own: a read from a terminal or pipe may wait for ever, and Ctrl-C must still be heard.
    std::thread::spawn(move || read(BufReader::with_capacity(1 << 16, input), &sender));
    let bar = output::progress(if dry_run { "checking" } else { "writing" }, None);
    let mut done = LinesDone::default();
    let mut ended = Ok(());
    loop {
        let chunk = tokio::select! {
            chunk = chunks.recv() => chunk,
            () = interrupt.heard() => {
                // Between two transactions: the count that is told below is all that was written.
                ended = Err(if done.written == 0 { interrupted().detail(nothing_written()) } else { interrupted() });
                break;
            }
        };
        let Some(chunk) = chunk else { break };
        let step = match chunk {
            Ok(chunk) => {
                done.read += chunk.envelopes.len() as u64;
                match &writer {
                    Some(writer) => write(writer, chunk, &mut interrupt, &mut done).await,
                    None => Ok(()),
                }
            }
            Err(BadLine { number, fault, why }) => Err(why.named(format!("line {number} of {} {fault}", name(&file)))),
        };
        if step.is_err() {
            ended = step;
            break;
        }
        bar.set_position(done.read);
    }
    bar.finish_and_clear();
    let is_interrupted = matches!(&ended, Err(failure) if failure.is_interrupted());
    if let Some(writer) = writer.filter(|_| !is_interrupted) {
        writer.close().await;
    }
    let LinesDone { read, written, last_line, .. } = done;
    match ended {
        Ok(()) if dry_run => eprintln!("{} checked, nothing was written", output::count(read, "event")),
        Ok(()) if read > written => {
            eprintln!("{} written, {} skipped because they exist already", output::count(written, "event"), read - written);
        }
        Ok(()) => eprintln!("{} written", output::count(written, "event")),
        Err(error) if written == 0 && is_interrupted => return Err(error),
        Err(error) if written == 0 && !dry_run => return Err(error.detail(nothing_written())),
        Err(error) if written == 0 => return Err(error),
        Err(error) => {
            let before = if is_interrupted { "Ctrl-C" } else { "the error" };
            eprintln!("{} written before {before}; they are not undone", output::count(written, "event"));
            eprintln!("{}", how_to_continue(&file, last_line, config));
            return Err(if is_interrupted { error } else { error.with_exit(Exit::Partly) });
        }
    }
    Ok(())
}

/// What was done of an input.
#[derive(Default)]
struct LinesDone {
    read: u64,
    written: u64,
    /// The number of the last line that is done: its event and all before it are written, or were there already.
    last_line: u64,
    /// Nobody reads the IDs any more.
    unheard: bool,
}

/// Which lines are done, and what writes the others. Events without IDs would be written a second time by the same command.
fn how_to_continue(file: &std::path::Path, last_line: u64, config: &Config) -> String {
    let (name, next) = (name(file), last_line + 1);
    let emit = config.flags.command("outbox event emit --jsonl -");
    let command = match name.as_str() {
        "standard input" => format!("give the lines from {next} on to the same command"),
        name => format!("tail -n +{next} {} | {emit}", output::argument(name)),
    };
    format!("the lines 1 to {last_line} of {name} are done; to continue after them: {command}")
}

fn name(file: &std::path::Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() }
}

/// Writes a chunk, prints the ids of the events that are new or may be, and counts them.
async fn write(writer: &Writer, chunk: Chunk, interrupt: &mut Interrupt, done: &mut LinesDone) -> Result<(), Failure> {
    let mut lines = chunk.lines.into_iter();
    let written = |taken: Taken| {
        done.last_line = taken.events.checked_sub(1).and_then(|last| lines.nth(last)).unwrap_or(done.last_line);
        let ids = [taken.new, taken.may_be_new].concat();
        done.written += ids.len() as u64;
        if done.unheard {
            return Ok(());
        }
        let mut text = String::with_capacity(ids.len() * 27);
        for id in ids {
            text.push_str(id.as_str());
            text.push('\n');
        }
        match output::print(&text) {
            // `head` has seen enough; the events are to be written all the same.
            Err(failure) if failure.is_unheard() => done.unheard = true,
            printed => printed?,
        }
        Ok(())
    };
    writer.emit(chunk.envelopes, interrupt, written).await
}

/// Some events of the input.
#[derive(Default)]
struct Chunk {
    envelopes: Vec<Envelope>,
    /// The numbers of their lines.
    lines: Vec<u64>,
}

fn read(mut input: impl BufRead, chunks: &mpsc::Sender<Result<Chunk, BadLine>>) {
    let mut chunk = Chunk::default();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        number += 1;
        line.clear();
        let end = match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(length) => length == 0,
            Err(error) => {
                let why = Failure::new(Exit::Failed, "").because(error);
                let _ = chunks.blocking_send(Err(BadLine { number, fault: "cannot be read", why }));
                return;
            }
        };
        if !line.trim_ascii().is_empty() {
            match Envelope::from_json(line.trim_ascii()) {
                Ok(envelope) => {
                    chunk.envelopes.push(envelope);
                    chunk.lines.push(number);
                }
                Err(error) => {
                    let why = bad(error, &line);
                    let _ = chunks.blocking_send(Err(BadLine { number, fault: "is not an event", why }));
                    return;
                }
            }
        }
        let (is_empty, is_full) = (chunk.envelopes.is_empty(), chunk.envelopes.len() == CHUNK);
        // The receiver is gone when it met an error: then nothing is left to do.
        if (end && !is_empty || is_full) && chunks.blocking_send(Ok(std::mem::take(&mut chunk))).is_err() {
            return;
        }
        if end {
            return;
        }
    }
}

fn bad(error: EnvelopeJsonError, line: &[u8]) -> Failure {
    let hint: Option<&str> = match &error {
        _ if line.trim_ascii_start().starts_with(b"[") => Some(
            "each line must be one JSON object, and this is an array; `jq -c '.[]' FILE` writes one line for each of its items",
        ),
        EnvelopeJsonError::Json(error) if error.is_eof() => Some(
            "each line must be one whole JSON object, and this line ends inside one; `jq -c . FILE` writes one line for each object",
        ),
        EnvelopeJsonError::Json(error) if error.to_string().starts_with("trailing characters") => Some(
            "each line must be one JSON object and nothing else; put a second object on a line of its own, as `jq -c . FILE` does, and \
                 remove anything else that follows, such as a comma",
        ),
        _ => None,
    };
    let failure = Failure::new(Exit::Usage, "").because(error);
    match hint {
        Some(hint) => failure.detail(hint.to_owned()),
        None => failure,
    }
}
