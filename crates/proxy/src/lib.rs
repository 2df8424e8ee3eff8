//! Moves statements between clients and servers, on workers that own their clients, their connections to servers and
//! nothing in common.
//!
//! [`worker::Worker`] is a worker as a state machine without I/O; [`io`] gives it sockets and a clock;
//! [`service::Service`] is all of them. What they know of configuration and topology is a
//! [`snapshot::Snapshot`], swapped whole.

#![forbid(unsafe_code)]

mod answers;
mod client;
mod context;
mod diagnostics;
#[doc(hidden)]
pub mod fuzzing;
pub mod io;
mod keys;
pub mod listener;
pub mod outbox;
pub mod peer;
mod plan;
mod pool;
mod random;
mod recovery;
mod reply;
mod server;
pub mod service;
mod session;
pub mod session_id;
pub mod shared;
pub mod snapshot;
mod statement;
pub mod stats;
mod stream;
pub mod verifier;
mod work;
pub mod worker;
