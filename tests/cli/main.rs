//! The `outbox` program as somebody meets it from outside: commands, exit codes, signals. Nothing here knows the library.

mod commands;
mod dead;
mod doctor;
mod host;
mod program;
mod route;
mod schema;
mod why;
