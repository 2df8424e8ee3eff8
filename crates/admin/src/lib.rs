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

mod activation;
mod audit;
mod command;
mod digest_db;
mod engine;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod listener;
mod login;
mod prepared;
mod reply;
mod response_cache;
mod run;
mod server;
mod session;
mod settings;
mod shutdown;
mod sqlite;
mod tokens;
mod variables;
mod wire;

pub use engine::{Engine, EngineCommand, Rows, SwitchoverPlan};
pub use listener::{ListenError, TakeoverSocket};
pub use server::{Admin, AdminError, AdminSockets};
pub use settings::Settings;
