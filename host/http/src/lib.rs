//! A part of [`outbox`](https://docs.rs/outbox): the HTTP API of a host, and its dashboard. A service adds this package beside `outbox`;
//! it works with any database that `outbox` has a feature for. The API writes events, reads them, and does operators' work.
//!
//! [`Server`] listens on a socket of its own; [`router`] is the same API for a service that has an axum router already.
//! Handlers use the functions that an embedder would use: the [`Writer`](outbox::Writer), the [`Store`](outbox::Store),
//! [`DeadEvents`](outbox::dead::DeadEvents). The host knows nothing of HTTP requests.
//!
//! `GET /openapi.json` describes every route of the API; router and document are made from one table. Programs send a token
//! with each request; browsers log in with it once, and have a session. Log lines have targets below `outbox::http`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
#[doc(hidden)] // for our own program
pub mod answer;
mod api;
mod auth;
mod body;
mod cached;
#[cfg(test)]
#[macro_use]
mod changed;
mod config;
mod cursor;
mod guard;
mod history;
mod host;
mod openapi;
mod pages;
mod params;
mod paths;
mod peer;
mod problem;
mod router;
mod server;
mod standing;
#[cfg(test)]
mod tests;

pub use self::access::token::{Role, Token, TokenHash, TokenHashError};
pub use self::config::{ConfigFaults, HttpConfig, Listen, ListenError};
pub use self::router::router;
pub use self::server::{ServeError, Server};
