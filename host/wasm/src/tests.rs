//! The sandbox's edges, tried with tiny components made from text.

mod cache;
mod compile;
mod files;
mod isolation;
mod last_good;
mod limits;
mod memory;
mod moves;
mod pages;
mod pairs;
mod pinned;
mod reload;
mod scans;
mod start;
mod trust;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Instant;

use outbox_event::{Cause, Envelope, Event, Failure, Outcome, Route};
use outbox_listener::{Listener, Reply, Visit};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::{Engine, LoadError, Manifest, PagemapScan, load_listener};

/// A guest in the making: what `on-event` does, as the body of a function from `$event` to a result.
#[derive(Clone)]
pub(super) struct Guest {
    body: String,
    outside: String,
    version: String,
    routes: Vec<(String, String)>,
    pages: u32,
}

/// Counts in its memory, and asks for as many seconds as it has been called.
pub(super) const COUNT: &str = "
    (global.set $count (i64.add (global.get $count) (i64.const 1)))
    (call $later (i64.mul (global.get $count) (i64.const 1000)))";

impl Guest {
    pub(super) fn new(body: &str) -> Self {
        Self {
            body: body.to_owned(),
            outside: String::new(),
            version: "1.0.0".to_owned(),
            routes: vec![("Order".to_owned(), "OrderPlaced".to_owned())],
            pages: 4,
        }
    }

    /// Functions, globals and data beside `on-event`.
    pub(super) fn outside(mut self, text: &str) -> Self {
        text.clone_into(&mut self.outside);
        self
    }

    pub(super) fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    pub(super) fn routes(mut self, routes: &[(&str, &str)]) -> Self {
        self.routes = routes.iter().map(|(a, e)| ((*a).to_owned(), (*e).to_owned())).collect();
        self
    }

    pub(super) fn pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    /// The core module, whose answers lie at 512, whose description lies at 1024, and whose heap begins at 65536.
    pub(super) fn core(&self) -> Vec<u8> {
        let text = format!(
            r#"(module
            (import "outbox:listener/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))
            (import "outbox:listener/settings@0.1.0" "get" (func $config (param i32 i32 i32)))
            (memory (export "memory") {pages})
            (global $heap (mut i32) (i32.const 65536))
            (global $count (mut i64) (i64.const 0))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
                (local.set $at (global.get $heap))
                (global.set $heap (i32.and (i32.add (i32.add (local.get $at) (local.get 3)) (i32.const 7)) (i32.const -8)))
                (block (loop (br_if 1 (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
                    (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable)) (br 0)))
                (local.get $at))
            (func $answer (param i32 i32) (result i32)
                (memory.fill (i32.const 512) (i32.const 0) (i32.const 48))
                (i32.store (i32.const 512) (local.get 0)) (i32.store (i32.const 516) (local.get 1)) (i32.const 512))
            (func $done (result i32) (call $answer (i32.const 0) (i32.const 0)))
            (func $later (param i64) (result i32)
                (drop (call $answer (i32.const 0) (i32.const 1))) (i32.store (i32.const 520) (i32.wrap_i64 (local.get 0))) (i32.const 512))
            (func $dead (param i32 i32) (result i32)
                (drop (call $answer (i32.const 0) (i32.const 2))) (i32.store (i32.const 520) (i32.const 1))
                (i32.store (i32.const 524) (local.get 0)) (i32.store (i32.const 528) (local.get 1)) (i32.const 512))
            (func $fail (param i32 i32 i32) (result i32)
                (drop (call $answer (i32.const 1) (local.get 0))) (i32.store (i32.const 520) (local.get 1))
                (i32.store (i32.const 536) (local.get 2)) (i32.const 512))
            (func (export "outbox:listener/handler@0.1.0#describe") (result i32) (i32.const 1024))
            (func (export "outbox:listener/handler@0.1.0#on-event") (param $event i32) (result i32) {body})
            (data (i32.const 1024) "{description}")
            {outside})"#,
            pages = self.pages,
            body = self.body,
            outside = self.outside,
            description = self.description(),
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// The description as it lies in memory: four pointers with lengths, the routes, the texts.
    fn description(&self) -> String {
        let texts_at = 1024 + 32 + 16 * self.routes.len();
        let (mut head, mut texts) = (Vec::new(), String::new());
        let mut push = |head: &mut Vec<u32>, text: &str| {
            head.extend([u32::try_from(texts_at + texts.len()).unwrap(), u32::try_from(text.len()).unwrap()]);
            texts.push_str(text);
        };
        push(&mut head, "guest");
        push(&mut head, &self.version);
        head.extend([1024 + 32, u32::try_from(self.routes.len()).unwrap(), 0, 0]);
        for (aggregate_type, event_type) in &self.routes {
            push(&mut head, aggregate_type);
            push(&mut head, event_type);
        }
        let bytes = head.into_iter().flat_map(u32::to_le_bytes).chain(texts.into_bytes());
        bytes.fold(String::new(), |mut escaped, byte| {
            write!(escaped, "\\{byte:02x}").unwrap();
            escaped
        })
    }

    /// The component.
    pub(super) fn build(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("wit/0.1.0")).unwrap();
        component(self.core(), &resolve, package)
    }

    /// Writes the component into a directory.
    pub(super) fn write(&self, dir: &Path, name: &str) -> PathBuf {
        put(dir, &format!("{name}.wasm"), &self.build())
    }

    /// Loads the component for two workers.
    pub(super) async fn load(&self, manifest: &str) -> Loaded {
        self.load_in(&Engine::new(2, PagemapScan::Auto).unwrap(), manifest).await
    }

    /// Loads the component in this sandbox.
    pub(super) async fn load_in(&self, engine: &Arc<Engine>, manifest: &str) -> Loaded {
        let dir = tempfile::tempdir().unwrap();
        let file = self.write(dir.path(), "guest");
        let registrations = load_listener(engine, &file, toml::from_str(manifest).unwrap()).await.unwrap();
        Loaded(registrations.into_iter().map(|registration| (registration.route, registration.listener)).collect())
    }

    /// Calls `on-event` once.
    pub(super) async fn outcome(&self, manifest: &str) -> Outcome {
        self.load(manifest).await.call(&event(None), 0, 1).await
    }

    /// Calls `on-event` once, which must break.
    pub(super) async fn broken(&self, manifest: &str) -> (Cause, String) {
        match self.outcome(manifest).await {
            Outcome::Failed(Failure { cause, message, .. }) => (cause, message),
            other => panic!("expected a failure, got {other:?}"),
        }
    }
}

/// Wraps a core module as a component of the package's world `listener`, or of its one world.
pub(super) fn component(mut core: Vec<u8>, resolve: &Resolve, package: wit_parser::PackageId) -> Vec<u8> {
    let ours = resolve.packages[package].worlds.contains_key("listener").then_some("listener");
    let world = resolve.select_world(&[package], ours).unwrap();
    embed_component_metadata(&mut core, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&core).unwrap().encode().unwrap()
}

/// The listeners of a loaded guest, by route.
pub(super) struct Loaded(Vec<(Route, Arc<dyn Listener>)>);

impl Loaded {
    pub(super) async fn call(&self, event: &Arc<Event>, worker: usize, batch: u64) -> Outcome {
        self.reply(event, worker, batch).await.outcome
    }

    pub(super) async fn reply(&self, event: &Arc<Event>, worker: usize, batch: u64) -> Reply {
        let (_, listener) = self.0.iter().find(|(route, _)| route == event.route()).expect("a route of the guest");
        listener.call(visit(event, worker, batch)).await
    }

    /// Calls a guest that counts, and returns how often its instance has been called.
    pub(super) async fn count(&self, event: &Arc<Event>, worker: usize, batch: u64) -> u64 {
        match self.call(event, worker, batch).await {
            Outcome::RetryAfter(delay) => delay.as_secs(),
            other => panic!("expected a count, got {other:?}"),
        }
    }
}

pub(super) fn visit(event: &Arc<Event>, worker: usize, batch: u64) -> Visit<'_> {
    Visit { event, worker, batch, deferrals: 0, max_attempts: 10, began: Instant::now() }
}

pub(super) fn event(tenant: Option<&str>) -> Arc<Event> {
    of_route("Order", "OrderPlaced", tenant, 1)
}

pub(super) fn of_route(aggregate_type: &str, event_type: &str, tenant: Option<&str>, attempt: u32) -> Arc<Event> {
    let mut envelope = Envelope::new(event_type).aggregate(aggregate_type, "7").header("k", "v");
    if let Some(tenant) = tenant {
        envelope = envelope.tenant(tenant);
    }
    Arc::new(Event::of(envelope.json(&"payload").unwrap()).attempt(attempt).build())
}

/// Writes a file as one should: under another name, and renamed.
pub(super) fn put(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let file = dir.join(name);
    let draft = dir.join(format!("{name}.part"));
    std::fs::write(&draft, bytes).unwrap();
    std::fs::rename(&draft, &file).unwrap();
    file
}

/// Everything that is logged on this thread while `run` goes on.
pub(super) async fn logged<T>(run: impl Future<Output = T>) -> (T, Vec<String>) {
    // With one subscriber alone, tracing asks the thread that comes to a log line first, and remembers its answer: a test without a
    // subscriber would switch the line off for all.
    static SECOND: LazyLock<tracing::Dispatch> = LazyLock::new(|| tracing::Dispatch::new(Logged::default()));
    LazyLock::force(&SECOND);
    let logged = Logged::default();
    let lines = logged.0.clone();
    let guard = tracing::subscriber::set_default(logged);
    let value = run.await;
    drop(guard);
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (value, lines)
}

#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("outbox")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                write!(self.0, " {field}={value:?}").unwrap();
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Loads a file with the default manifest, which must fail.
pub(super) async fn refused(file: &Path) -> LoadError {
    refused_in(&Engine::new(1, PagemapScan::Off).unwrap(), file).await
}

/// Loads a file in this sandbox with the default manifest, which must fail.
pub(super) async fn refused_in(engine: &Arc<Engine>, file: &Path) -> LoadError {
    match load_listener(engine, file, Manifest::default()).await {
        Ok(_) => panic!("{} was loaded", file.display()),
        Err(error) => error,
    }
}
