//! The `outbox` program as somebody meets it from outside: commands, exit codes, signals. Nothing here knows the library; what
//! writes in transactions of its own stands in `support`.

mod alone;
mod commands;
mod conformance;
mod cost;
mod crowd;
mod dead;
mod doctor;
mod dry_run;
mod every;
mod failing;
mod first_run;
mod home;
mod host;
mod http;
mod loading;
mod log;
mod network;
mod node;
mod outage;
mod plugins;
mod program;
mod project;
mod route;
mod schema;
mod sinks;
mod state;
mod stuck;
mod swap;
mod telemetry;
mod tls;
mod top;
mod total_order;
mod why;
