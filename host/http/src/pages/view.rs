//! The pages: what is known in, markup out. Pure; a file for each page, and for what several pages show alike.

pub(super) mod audit;
pub(super) mod copy;
pub(super) mod dead;
pub(super) mod event;
pub(super) mod events;
pub(super) mod hosts;
pub(super) mod overview;
pub(super) mod paging;
pub(super) mod payload;
pub(super) mod plugins;
pub(super) mod routes;
pub(super) mod sinks;
