//! How a command ends badly: what is printed, and the exit code.

use std::error::Error;

use outbox::deceptive::shown;
use outbox::purge::PurgeError;
use outbox::units::count;
use outbox::{EnvelopeError, EventId, StartError, StoreError, WriteError};

use crate::stderr;

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It went wrong.
    Failed = 1,
    /// The command line is wrong, or an event that it gives.
    Usage = 2,
    /// What was named does not exist: an event, a plugin, a file that an argument names.
    NotFound = 3,
    /// The configuration is not valid, or a host refuses the token.
    Config = 4,
    /// The database or the host cannot be reached, or the database lacks our tables.
    Unreachable = 5,
    /// Some of it was done.
    Partly = 6,
    /// The event or file exists already, or the state of events, routes or hosts does not allow the change.
    Conflict = 7,
    /// It was looked at, and something was found.
    Findings = 8,
    /// Somebody stopped it.
    Interrupted = 130,
}

/// Why a command ended, and with which code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    details: Vec<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
    /// The reader of our output went away: nobody is left to tell.
    unheard: bool,
    /// The same may succeed later without anybody changing the program or its configuration.
    passing: bool,
    /// The database user lacks a right.
    forbidden: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            details: Vec::new(),
            source: None,
            unheard: false,
            passing: false,
            forbidden: false,
        }
    }

    /// A file or directory that an argument names cannot be read: 3 when it does not exist, else this code.
    pub(crate) fn unreadable(message: impl Into<String>, error: std::io::Error, otherwise: Exit) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { otherwise };
        Self::new(exit, message).because(error)
    }

    /// Whether the same may succeed later without anybody changing the program or its configuration.
    pub(crate) fn is_passing(&self) -> bool {
        self.passing
    }

    /// No event has this ID.
    pub(crate) fn no_such_event(id: EventId, hint: &str) -> Self {
        let failure = Self::new(Exit::NotFound, format!("no event has the id {id}; {hint}"));
        if !id.as_str().bytes().all(|byte| byte.is_ascii_digit()) {
            return failure;
        }
        failure.detail(format!(
            "{id} looks like a SEQ, the number in the first column of a list; give the EVENT_ID, the second column"
        ))
    }

    /// Whether it is only that nobody reads our output any more.
    pub(crate) fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// Whether the database user lacks a right.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.forbidden
    }

    /// Whether somebody stopped the command.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.exit == Exit::Interrupted
    }

    /// Only the code: all was said already.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// One that may be over later without anybody doing anything.
    pub(crate) fn passing(self) -> Self {
        Self { passing: true, ..self }
    }

    /// With the error behind it.
    pub(crate) fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// With more lines.
    pub(crate) fn details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// With one more line.
    pub(crate) fn detail(mut self, detail: String) -> Self {
        self.details.push(detail);
        self
    }

    /// With what the command had done when it went wrong, such as `deleted`; nothing is said of no events.
    pub(crate) fn after(self, events: u64, done: &str) -> Self {
        if events == 0 {
            return self;
        }
        let were = if events == 1 { "was" } else { "were" };
        self.detail(format!("{} {were} {done} before this; the audit log has it", count(events, "event")))
    }

    /// What went wrong, without its causes.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The message and its causes, on one line.
    pub(crate) fn chain(&self) -> String {
        match &self.source {
            Some(source) => format!("{}: {}", self.message, outbox::chain(&**source)),
            None => self.message.clone(),
        }
    }

    /// With another message.
    pub(crate) fn named(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// With another code, and told in any case.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self.unheard = false;
        self
    }

    /// Prints the chain, and gives the code.
    pub(crate) fn report(&self) -> u8 {
        if self.unheard {
            return 0;
        }
        if !self.message.is_empty() {
            say("error: ", &self.message);
        }
        for detail in &self.details {
            say("  ", detail);
        }
        let mut last = self.message.clone();
        let mut source: Option<&dyn Error> = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(error) = source {
            let text = error.to_string();
            // A wrapper that only repeats what it wraps says nothing new.
            if !last.contains(&text) {
                say("  because: ", &text);
            }
            last = text;
            source = error.source();
        }
        self.exit as u8
    }
}

/// Says it line by line: what another program has answered, or what a file holds, must not drive the terminal.
fn say(before: &str, text: &str) {
    let lines: Vec<_> = text.split('\n').map(shown).collect();
    stderr::say(&format!("{before}{}", lines.join("\n")));
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let unheard = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { unheard, ..Self::new(Exit::Failed, "the output could not be written").because(error) }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::Url { .. } | StoreError::Parameter { .. } | StoreError::AddressUnread(_) => Exit::Config,
            StoreError::NoSchema { .. }
            | StoreError::NoVersion { .. }
            | StoreError::NoIndex { .. }
            | StoreError::SchemaOlder { .. }
            | StoreError::SchemaNewer { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Unreachable { .. } => Exit::Unreachable,
            error if error.is_transient() => Exit::Unreachable,
            _ => Exit::Failed,
        };
        // Its own text is the message.
        let (passing, source) = (error.is_transient(), Cause::of(&error).source.map(|source| source as _));
        let forbidden = matches!(error, StoreError::Forbidden { .. });
        Self { passing, forbidden, source, ..Self::new(exit, error.to_string()) }
    }
}

/// The causes of an error whose own text is the message already.
#[derive(Debug)]
struct Cause {
    text: String,
    source: Option<Box<Cause>>,
}

impl Cause {
    fn of(error: &dyn Error) -> Self {
        Self { text: error.to_string(), source: error.source().map(|source| Box::new(Self::of(source))) }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &dyn Error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Store(error) => error.into(),
            WriteError::Duplicate { .. } => Self::new(Exit::Conflict, error.to_string()),
            error => Self::new(Exit::Failed, "the events were not written").because(error),
        }
    }
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        Self::new(Exit::Usage, "the event is not valid").because(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => error.into(),
            StartError::Config(faults) => Self::new(Exit::Config, "the configuration is not valid").details(faults),
            error @ StartError::Plugins(_) => Self::new(Exit::Config, "the plugins cannot be loaded").because(error),
            error => Self::new(Exit::Failed, "the host did not start").because(error),
        }
    }
}

impl From<PurgeError> for Failure {
    fn from(error: PurgeError) -> Self {
        match error {
            PurgeError::Store(error) => error.into(),
            error => Self::new(Exit::Failed, error.to_string()),
        }
    }
}
