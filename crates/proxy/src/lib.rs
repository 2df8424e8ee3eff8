//! The data plane: workers that own their clients, their connections to servers and nothing in common.
//!
//! [`core::Core`] is a worker as a state machine without I/O; [`driver`] gives it sockets and a clock;
//! [`service::Service`] is all of them. What they know of configuration and topology is a
//! [`snapshot::Snapshot`], swapped whole.

#![forbid(unsafe_code)]

pub mod core;
pub mod driver;
#[doc(hidden)]
pub mod fuzzing;
pub mod listener;
pub mod outbox;
pub mod service;
pub mod session_id;
pub mod shared;
pub mod snapshot;
pub mod statistics;
pub mod verifier;
