//! Tiny guests made from text, for what no compiler of an honest language would produce.

use std::fmt::Write;
use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The world of these guests: everything that a listener may import, clocks to wait for, and more of WASI that every host links.
const WORLD: &str = "package test:guest@0.1.0;
world guest {
  include outbox:listener/http-listener@0.1.0;
  import wasi:clocks/monotonic-clock@0.2.12;
  import wasi:io/poll@0.2.12;
  import wasi:cli/stderr@0.2.12;
  import wasi:sockets/instance-network@0.2.12;
  import wasi:sockets/ip-name-lookup@0.2.12;
}
package wasi:cli@0.2.12 {
  interface stderr {
    use wasi:io/streams@0.2.12.{output-stream};
    get-stderr: func() -> output-stream;
  }
}
package wasi:sockets@0.2.12 {
  interface network {
    resource network;
    enum error-code {
      unknown, access-denied, not-supported, invalid-argument, out-of-memory, timeout, concurrency-conflict, not-in-progress,
      would-block, invalid-state, new-socket-limit, address-not-bindable, address-in-use, remote-unreachable, connection-refused,
      connection-reset, connection-aborted, datagram-too-large, name-unresolvable, temporary-resolver-failure,
      permanent-resolver-failure,
    }
  }
  interface instance-network {
    use network.{network};
    instance-network: func() -> network;
  }
  interface ip-name-lookup {
    use network.{network, error-code};
    resource resolve-address-stream;
    resolve-addresses: func(network: borrow<network>, name: string) -> result<resolve-address-stream, error-code>;
  }
}";

/// A guest in the making: what `on-event` does, as the body of a function from `$event` to a result.
///
/// The event lies at `$event`: its type at 24 (pointer) and 28 (length), attempt at 72, payload at 84 and 88, the number of
/// headers at 96. `$done`, `$later`, `$dead`, `$fail` make answers; `$log`, `$config`, `$secret`, `$state_get`, `$state_set`,
/// `$emit`, `$remaining`, `$subscribe`, `$block` and others call the host. Text of its own is best put at 2048 by
/// `outside("(data …)")`; from 32768 to 65536 the memory is free, and the heap comes behind.
#[derive(Clone, Debug)]
pub struct Guest {
    body: String,
    imports: String,
    outside: String,
    describe: String,
    allocator: Option<String>,
    name: String,
    version: String,
    routes: Vec<(String, String)>,
    pages: u32,
}

impl Guest {
    /// One that answers `Evil/Deed`.
    #[must_use]
    pub fn new(body: &str) -> Self {
        Self {
            body: body.to_owned(),
            imports: String::new(),
            outside: String::new(),
            describe: "(i32.const 1024)".to_owned(),
            allocator: None,
            name: "guest".to_owned(),
            version: "1.0.0".to_owned(),
            routes: vec![("Evil".to_owned(), "Deed".to_owned())],
            pages: 4,
        }
    }

    /// Functions, globals, memories and data beside `on-event`.
    #[must_use]
    pub fn outside(mut self, text: &str) -> Self {
        self.outside.push_str(text);
        self
    }

    /// Functions of the host beside those that every guest imports.
    #[must_use]
    pub fn imports(mut self, text: &str) -> Self {
        self.imports.push_str(text);
        self
    }

    /// What `describe` does; the description lies at 1024.
    #[must_use]
    pub fn describe(mut self, body: &str) -> Self {
        body.clone_into(&mut self.describe);
        self
    }

    /// What its allocator does, instead of allocating.
    #[must_use]
    pub fn allocator(mut self, body: &str) -> Self {
        self.allocator = Some(body.to_owned());
        self
    }

    /// What it calls itself.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Its version, instead of 1.0.0.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Other routes, at most thirty.
    #[must_use]
    pub fn routes(mut self, routes: &[(&str, &str)]) -> Self {
        self.routes = routes.iter().map(|(a, e)| ((*a).to_owned(), (*e).to_owned())).collect();
        self
    }

    /// This many pages of memory to begin with, instead of 4.
    #[must_use]
    pub fn pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    /// The component.
    ///
    /// # Panics
    /// When the text is no module, or imports what no listener may.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/0.1.0")).expect("the contract is there");
        let package = resolve.push_str("guest.wit", WORLD).expect("the world is written well");
        let world = resolve.select_world(&[package], None).expect("it has one world");
        let mut core = self.core();
        embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).expect("it can be embedded");
        let encoder = ComponentEncoder::default().validate(true).module(&core).expect("it is a module of this world");
        { encoder }.encode().expect("it makes a component")
    }

    /// The core module alone.
    ///
    /// # Panics
    /// When the text is no module.
    #[must_use]
    pub fn core(&self) -> Vec<u8> {
        let Self { body, imports, outside, describe, pages, .. } = self;
        let description = self.description();
        let allocator = self.allocator.as_deref().unwrap_or(ALLOCATOR);
        let text = format!(
            r#"(module {IMPORTS} {imports}
            (memory (export "memory") {pages})
            (global $heap (mut i32) (i32.const 65536))
            (global $count (mut i32) (i32.const 0))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32) {allocator})
            {ANSWERS}
            (func (export "outbox:listener/handler@0.1.0#describe") (result i32) {describe})
            (func (export "outbox:listener/handler@0.1.0#on-event") (param $event i32) (result i32) {body})
            (data (i32.const 1024) "{description}")
            {outside})"#
        );
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// The description as it lies in memory: four pointers with lengths, the routes, the texts.
    fn description(&self) -> String {
        let texts_at = 1024 + 32 + 16 * self.routes.len();
        let (mut head, mut texts) = (Vec::new(), String::new());
        let mut push = |head: &mut Vec<usize>, text: &str| {
            head.extend([texts_at + texts.len(), text.len()]);
            texts.push_str(text);
        };
        push(&mut head, &self.name);
        push(&mut head, &self.version);
        head.extend([1024 + 32, self.routes.len(), 0, 0]);
        for (aggregate_type, event_type) in &self.routes {
            push(&mut head, aggregate_type);
            push(&mut head, event_type);
        }
        let words = head.into_iter().map(|word| u32::try_from(word).expect("it is small"));
        let bytes = words.flat_map(u32::to_le_bytes).chain(texts.into_bytes());
        bytes.fold(String::new(), |mut escaped, byte| {
            write!(escaped, "\\{byte:02x}").expect("a String takes everything");
            escaped
        })
    }
}

const IMPORTS: &str = r#"
    (import "outbox:listener/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))
    (import "outbox:listener/settings@0.1.0" "get" (func $config (param i32 i32 i32)))
    (import "outbox:listener/settings@0.1.0" "secret" (func $secret (param i32 i32 i32)))
    (import "outbox:listener/call@0.1.0" "remaining-ms" (func $remaining (result i32)))
    (import "outbox:listener/emit@0.1.0" "emit" (func $emit (param i32 i32)))
    (import "outbox:listener/state@0.1.0" "get" (func $state_get (param i32 i32 i32)))
    (import "outbox:listener/state@0.1.0" "set" (func $state_set (param i32 i32 i32 i32 i32)))
    (import "outbox:listener/publish@0.1.0" "send"
        (func $publish (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "wasi:clocks/monotonic-clock@0.2.12" "now" (func $now (result i64)))
    (import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $subscribe (param i64) (result i32)))
    (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))
    (import "wasi:io/poll@0.2.12" "poll" (func $poll (param i32 i32 i32)))
    (import "wasi:http/types@0.2.12" "[constructor]fields" (func $fields (result i32)))
    (import "wasi:http/types@0.2.12" "[constructor]outgoing-request" (func $request (param i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-authority"
        (func $set_authority (param i32 i32 i32 i32) (result i32)))
    (import "wasi:http/types@0.2.12" "[method]future-incoming-response.subscribe" (func $response_ready (param i32) (result i32)))
    (import "wasi:http/outgoing-handler@0.2.12" "handle" (func $handle (param i32 i32 i32 i32)))
"#;

const ALLOCATOR: &str = r#"
        (local.set $at (global.get $heap))
        (global.set $heap (i32.and (i32.add (i32.add (local.get $at) (local.get 3)) (i32.const 7)) (i32.const -8)))
        (block (loop (br_if 1 (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
            (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable)) (br 0)))
        (local.get $at)
"#;

const ANSWERS: &str = r#"
    (func $answer (param i32 i32) (result i32)
        (memory.fill (i32.const 512) (i32.const 0) (i32.const 64))
        (i32.store (i32.const 512) (local.get 0)) (i32.store (i32.const 516) (local.get 1)) (i32.const 512))
    (func $done (result i32) (call $answer (i32.const 0) (i32.const 0)))
    (func $later (param i32) (result i32)
        (drop (call $answer (i32.const 0) (i32.const 1))) (i32.store (i32.const 520) (local.get 0)) (i32.const 512))
    (func $dead (param i32 i32) (result i32)
        (drop (call $answer (i32.const 0) (i32.const 2))) (i32.store (i32.const 520) (i32.const 1))
        (i32.store (i32.const 524) (local.get 0)) (i32.store (i32.const 528) (local.get 1)) (i32.const 512))
    (func $fail (param i32 i32 i32) (result i32)
        (drop (call $answer (i32.const 1) (local.get 0))) (i32.store (i32.const 520) (local.get 1))
        (i32.store (i32.const 536) (local.get 2)) (i32.const 512))
"#;
