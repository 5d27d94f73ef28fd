//! Sinks against real brokers and endpoints: confirmed means that it is there, and a sink that is down loses nothing.
//!
//! Brokers that a test stops or kills are its own.

mod amqp;
mod broker;
mod certificate;
mod common;
mod endpoint;
mod example;
mod hostile;
mod hostile_nats;
mod http;
mod http2;
mod ipv6;
mod kafka;
mod nats;
mod receiver;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod relay;
mod status;
mod stdout;
mod tls;
