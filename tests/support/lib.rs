//! What the tests share: databases that live as long as a test, listeners that can be met, and ways to wait without sleeping
//! for luck.

mod database;
mod eventually;
mod ledger;
mod mysql;
mod plugins;
mod recorder;
mod sqlite;

pub use database::Harness;
pub use eventually::{PATIENCE, eventually, in_time};
pub use ledger::{Ledger, Report};
pub use mysql::MySql;
pub use plugins::sample_plugins;
pub use recorder::Recorder;
pub use sqlite::Sqlite;
