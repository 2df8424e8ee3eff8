//! Connections to servers: set-up, state, and replies.

pub(crate) mod connection;
pub(crate) mod defaults;
pub(crate) mod setup;
pub(crate) mod verify;
