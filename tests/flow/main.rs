//! The walk of an event, from a transaction to its end, through the public API alone.

mod acceptance;
mod common;
mod dispatch;
mod lifecycle;
mod order;
mod purge;
mod routes;
mod writer;
