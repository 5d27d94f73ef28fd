//! HTTP requests of a guest: by the contract's own `http` interface, or by `wasi:http`.

mod plain;
pub(super) mod wasi;
