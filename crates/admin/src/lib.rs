//! Serves the admin interface: what a ProxySQL DBA finds on port 6032.
//!
//! ```text
//! client ──► wire ──► login ──► session ──► command ──► run ──► sqlite (weir_store) : tables
//!            packets  accounts  protocol    what is it?     └──► Engine             : the running Weir
//! ```
//!
//! Nothing here is on a statement's way through the proxy: each connection has a thread, and all share one database
//! behind a mutex. Who asks for a table of what is now (`stats`, `monitor`, `runtime_...`) has it filled by the
//! [`Engine`] first.

#![forbid(unsafe_code)]

mod annex;
mod audit;
mod command;
mod engine;
mod error;
mod force;
#[doc(hidden)]
pub mod fuzzing;
mod leaving;
mod limits;
mod listener;
mod login;
mod prepared;
mod reply;
mod run;
mod server;
mod session;
mod settings;
mod shelf;
mod sqlite;
mod tokens;
mod variables;
mod wire;

pub use engine::{Engine, EngineCommand, Rows, SwitchoverPlan};
pub use listener::{Handed, ListenError};
pub use server::{Admin, AdminError, Doors};
pub use settings::Settings;
