//! What the tests share: databases that live as long as a test, listeners that can be met, and ways to wait without sleeping
//! for luck.

mod breakers;
mod chance;
mod claims;
mod collector;
mod database;
mod endpoint;
mod eventually;
mod evidence;
mod gate;
mod guest;
pub mod history;
mod indexes;
mod languages;
mod ledger;
mod mysql;
mod plugins;
mod postgres;
mod proxy;
mod recorder;
mod scrape;
mod sqlite;
mod witness;
mod writers;

pub use breakers::{breakers, honest};
pub use chance::Seed;
pub use claims::{claim_due, due};
pub use collector::{Collector, Manner, Received};
pub use database::{Database, Harness};
pub use endpoint::Endpoint;
pub use eventually::{PATIENCE, eventually, in_time};
pub use evidence::Evidence;
pub use gate::{Gate, Moment};
pub use guest::Guest;
pub use history::Report;
pub use languages::{DOCUMENTED_PAYLOAD, documented_insert, first_documented_insert, python};
pub use ledger::Ledger;
pub use mysql::MySql;
pub use plugins::{sample_languages, sample_plugins};
pub use postgres::Postgres;
pub use proxy::{Network, Proxy};
pub use recorder::Recorder;
pub use scrape::{Scrape, promtool};
pub use sqlite::Sqlite;
pub use witness::{Trouble, Witness};
pub use writers::{ColdWriters, Faults, Places, Writers};
