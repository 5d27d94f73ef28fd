//! The `outbox` program as somebody meets it from outside: commands, exit codes, signals. Nothing here knows the library; what
//! writes in transactions of its own stands in `support`.

mod commands;
mod crowd;
mod dead;
mod doctor;
mod every;
mod home;
mod host;
mod network;
mod node;
mod outage;
mod plugins;
mod program;
mod route;
mod schema;
mod sinks;
mod stuck;
mod tls;
mod total_order;
mod why;
