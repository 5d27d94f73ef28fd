//! The parts of tokio that the modules use, under a scheduler that chooses who continues: the same names, and what tokio's documentation
//! promises. Also what they use of foldhash, so that a schedule means the same in every run.

#![forbid(unsafe_code)]

pub mod fast;
mod notify;
pub mod runtime;
pub mod sync;
pub mod time;

/// Pins a future where it stands.
#[macro_export]
macro_rules! pin {
    ($future:ident) => {
        let mut $future = $future;
        #[allow(unused_mut)]
        let mut $future = ::std::pin::pin!($future);
    };
}
