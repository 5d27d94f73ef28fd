//! What a request asks for: the fields of its address or form, and the events and routes that they choose.

pub(super) mod events;
pub(super) mod fields;
pub(super) mod routes;
