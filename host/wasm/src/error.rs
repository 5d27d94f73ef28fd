//! Why a component file did not become a listener.

use std::path::PathBuf;

use outbox_event::units::ByteSize;
use outbox_event::{NameError, Owner};
use outbox_listener::RouteConflict;

/// Why a component file did not become a listener, or the plugins directory cannot be used.
///
/// Nothing has changed: a version that served before still serves. What [may pass](Self::may_pass) by itself is tried again when
/// something changes, and after growing rests; the others come back until the file or its manifest changes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// This machine cannot run WebAssembly as the host needs it.
    #[error("the WebAssembly engine could not be set up on this machine")]
    Engine(#[source] wasmtime::Error),
    /// The plugins directory cannot be used.
    #[error("plugins directory {dir}: {reason}")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The file could not be read.
    #[error("{file} could not be read")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A symlink out of the plugins directory.
    #[error("{file} leads to {target}, outside the plugins directory; copy the file into it, or make the link relative")]
    Outside {
        /// The link.
        file: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Somebody else could write it, or a directory on the way to it.
    #[error("{file} is not loaded: {reason}")]
    Untrusted {
        /// The file or directory.
        file: PathBuf,
        /// Who, and what to do.
        reason: String,
    },
    /// A directory, socket, device or pipe.
    #[error("{file} is not a regular file")]
    NotAFile {
        /// What is there.
        file: PathBuf,
    },
    /// Too large to be loaded.
    #[error("{file} has {bytes} bytes; at most {max} are loaded: build in release mode and strip it", max = super::limits::MAX_FILE_BYTES)]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Somebody is still writing it.
    #[error("{file} is still changing; it is loaded when it stays the same (copy it under another name, then rename it)")]
    Changing {
        /// The file.
        file: PathBuf,
    },
    /// The manifest is wrong.
    #[error("the manifest {file} is not valid: {reason}")]
    Manifest {
        /// The manifest, or the section of the host's configuration.
        file: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// The file's name is no plugin's name.
    #[error("{file:?} is not loaded: a plugin's name has 1 to 64 letters, digits, `.`, `_` and `-` of ASCII; rename the file")]
    Name {
        /// The file.
        file: PathBuf,
    },
    /// The manifest asks for another component.
    #[error("{file} has the digest {found}, and its manifest {manifest} asks for {wanted}: the pair is loaded once both match")]
    Digest {
        /// The component file.
        file: PathBuf,
        /// The manifest, or the section of the host's configuration.
        manifest: String,
        /// The digest of the manifest.
        wanted: String,
        /// The digest of the file.
        found: String,
    },
    /// The file in which the plugins are pinned cannot be used: nothing is loaded that is not loaded yet.
    #[error("{file}, which pins the plugins, cannot be used: {reason}")]
    Lock {
        /// The file.
        file: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The plugin is pinned to another component or manifest.
    #[error(
        "the {what} of {plugin} has the digest sha256:{found}, and {lock} pins sha256:{wanted}; put the pinned one back, or look at what \
         changed and pin it with `outbox plugin lock`"
    )]
    Pin {
        /// The plugin.
        plugin: String,
        /// `component` or `manifest`.
        what: &'static str,
        /// The file that pins it.
        lock: PathBuf,
        /// The digest that is pinned.
        wanted: String,
        /// The digest that was found.
        found: String,
    },
    /// Only what is pinned is loaded, and this is not.
    #[error(
        "{plugin} is not pinned in {lock}, and plugins.strict loads nothing else; look at it, and pin it with `outbox plugin lock`"
    )]
    Unpinned {
        /// The plugin.
        plugin: String,
        /// The file that pins the others.
        lock: PathBuf,
    },
    /// A value of the manifest's `[config]` or `[secrets]` comes from elsewhere, and is not there or must not be read.
    #[error("{table}.{key} of {plugin}.toml has no value: {reason}")]
    Config {
        /// The plugin.
        plugin: String,
        /// `config` or `secrets`.
        table: &'static str,
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// The file of certificates that plugins' HTTPS trusts cannot be used.
    #[error("HTTPS requests of plugins cannot be made ready: {reason}; correct plugins.ca_file")]
    Authorities {
        /// Which file, and what is wrong with it.
        reason: String,
    },
    /// The manifest grants a sink that this host does not have.
    #[error(
        "publish.sinks of {plugin}.toml names the sink `{sink}`, and this host has {}; name one that it has, or add a section [sinks.{sink}]",
        if .known.is_empty() { "no sinks".to_owned() } else { format!("only {}", .known.join(", ")) }
    )]
    Sink {
        /// The plugin.
        plugin: String,
        /// The sink.
        sink: String,
        /// The sinks that the host has, sorted.
        known: Vec<String>,
    },
    /// The component has looked at its settings, and cannot work with them.
    #[error("{file} does not accept its settings: {reason}; {manifest}")]
    Settings {
        /// The file.
        file: PathBuf,
        /// Where they stand, or which file to write.
        manifest: String,
        /// What the component says.
        reason: String,
    },
    /// Not a component at all.
    #[error("{file} is not a WebAssembly component: {reason}")]
    NotAComponent {
        /// The file.
        file: PathBuf,
        /// What it is, and what to do.
        reason: String,
    },
    /// The bytes are damaged, or end too early.
    #[error(
        "{file} is damaged or not complete, at byte {offset} of {bytes}: {reason}; copy it again under another name, then rename it"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// Its size.
        bytes: u64,
        /// What the reader says.
        reason: String,
    },
    /// Larger or deeper than any honest component.
    #[error("{file} has {what}; at most {max} are compiled, because compiling takes this host's time and memory")]
    TooComplex {
        /// The file.
        file: PathBuf,
        /// What there is too much of, with its number.
        what: String,
        /// How much is allowed.
        max: u64,
    },
    /// The compiler refuses it.
    #[error("{file} could not be compiled: {reason}")]
    Compile {
        /// The file.
        file: PathBuf,
        /// What the compiler says, and what to do.
        reason: String,
    },
    /// The compiler was stopped by a limit, or died of the file.
    #[error(
        "{file} was not compiled, since its compiler {how}; no honest component comes near: build it in release mode, or as a smaller \
         one. It is not tried again while file and host stay the same (`outbox plugin retry NAME` tries again)"
    )]
    Stopped {
        /// The file.
        file: PathBuf,
        /// What the compiler did, and which limit ended it.
        how: String,
    },
    /// The same bytes had to be stopped before.
    #[error(
        "{file} is not compiled again, since its compiler {how} at {since}; build it in release mode, or as a smaller one, or try again \
         with `outbox plugin retry NAME`"
    )]
    Quarantined {
        /// The file.
        file: PathBuf,
        /// What the compiler did, and which limit ended it.
        how: String,
        /// When.
        since: outbox_event::time::Timestamp,
    },
    /// The process that compiles could not be started, or did not answer.
    #[error("{file} could not be compiled, since the compiler's process cannot be used")]
    Compiler {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The compiler was not given enough processor time to end in time.
    #[error(
        "{file} was not compiled, since its compiler did not end within {} (plugins.compile_limits.wall), with processor time left: \
         the machine is busy. A host that runs tries again by itself; raise the limit where the machine is always as busy",
        humantime::format_duration(*wall)
    )]
    CompilerLate {
        /// The file.
        file: PathBuf,
        /// The limit.
        wall: std::time::Duration,
    },
    /// The component was built against another listener contract, or none.
    #[error("{file} does not fit this host, which calls outbox:listener@0.1.0: {}", differences.join("; "))]
    WrongWorld {
        /// The file.
        file: PathBuf,
        /// Every difference, with what to do.
        differences: Vec<String>,
    },
    /// Imports or exports have other shapes than ours.
    #[error("{file} does not fit this host: {reason}; rebuild it with an outbox-sdk for outbox:listener@0.1.0")]
    Link {
        /// The file.
        file: PathBuf,
        /// What wasmtime says.
        reason: String,
    },
    /// It needs more than it may have before it has done anything.
    #[error("{file} needs {what}; {advice}")]
    Needs {
        /// The file.
        file: PathBuf,
        /// What it needs.
        what: String,
        /// What to do.
        advice: String,
    },
    /// `describe` did not answer.
    #[error("{file} could not describe itself: {reason}")]
    Describe {
        /// The file.
        file: PathBuf,
        /// How it ended.
        reason: String,
    },
    /// Too many calls are going on to try it.
    #[error("{file} could not be tried, since calls take all slots of the pool")]
    NoSlot {
        /// The file.
        file: PathBuf,
    },
    /// Too little memory is free to try it.
    #[error(
        "{file} could not be tried: all plugins together may have {max} of memory, and too little of it is free; raise plugins.memory"
    )]
    NoMemory {
        /// The file.
        file: PathBuf,
        /// The memory that all plugins may have together.
        max: ByteSize,
    },
    /// `describe` answered something that cannot be.
    #[error("{file} describes itself wrongly: {reason}")]
    Description {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// One of its routes has a name that breaks a rule.
    #[error("{file} declares a route that is none ({aggregate_type:?}, {event_type:?})")]
    Route {
        /// The file.
        file: PathBuf,
        /// The first name.
        aggregate_type: String,
        /// The second name.
        event_type: String,
        /// Which rule.
        source: NameError,
    },
    /// Somebody else answers one of its routes.
    #[error("{} is already answered by {}; {}", .conflict.route, .conflict.holder, advice(&.conflict.holder))]
    Conflict {
        /// The file.
        file: PathBuf,
        /// Which route and who has it.
        conflict: RouteConflict,
    },
}

/// How two that want the same route come apart.
fn advice(holder: &Owner) -> &'static str {
    match holder {
        Owner::Plugin(_) => "remove one of them, or the route from one",
        Owner::Native => "remove the route from the plugin, or from the application",
        Owner::Sink(_) => "remove the route from the plugin, or from the sink",
    }
}

impl LoadError {
    /// Whether the same file with the same manifest may load the next time.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Changing { .. }
                | Self::Config { .. }
                | Self::Authorities { .. }
                | Self::Settings { .. }
                | Self::NoSlot { .. }
                | Self::NoMemory { .. }
                | Self::Compiler { .. }
                | Self::CompilerLate { .. }
                | Self::Lock { .. }
                | Self::Pin { .. }
                | Self::Unpinned { .. }
                | Self::Untrusted { .. }
        )
    }
}
