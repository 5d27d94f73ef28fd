//! Projects of plugins: written by `plugin new`, built by `plugin build`, built at every save and tried by `plugin dev`.
//!
//! - `language`: which languages there are, and which one a project is in
//! - `sdk`: the SDKs, carried in this program
//! - `sources`: which files of a project are its sources, and when one of them has changed
//! - `template`: the files of a new project
//! - `new`: `outbox plugin new`
//! - `toolchain`: what builds a language, where it is, and the command that installs it
//! - `build`: `outbox plugin build`
//! - `dev`: `outbox plugin dev`

pub(crate) mod build;
pub(crate) mod dev;
mod language;
pub(crate) mod new;
mod sdk;
mod sources;
mod template;
mod toolchain;
