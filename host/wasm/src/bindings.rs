//! The listener contract as Rust types, made from `wit/` by wasmtime.
//!
//! What goes into the guest is borrowed, so that a call copies neither strings nor payload on the host's side.

#![allow(unreachable_pub, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "generated")]

wasmtime::component::bindgen!({
    world: "listener",
    path: "wit/0.1.0",
    imports: {
        "outbox:listener/state": async | trappable,
        "outbox:listener/publish": async | trappable,
        "outbox:listener/http": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    ownership: Borrowing { duplicate_if_necessary: true },
});
