//! Connections to servers: set-up, state, and replies.

pub(crate) mod connection;
pub(crate) mod defaults;
pub(crate) mod errors;
pub(crate) mod fetch;
pub(crate) mod own_queries;
pub(crate) mod reported_state;
pub(crate) mod statements;
pub(crate) mod variables;
pub(crate) mod verify;
