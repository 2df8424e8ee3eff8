//! A connection to a server: the state it is in, what it owes, and what Weir itself sends there. Knows no session but by its key.

pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod defaults;
pub(crate) mod errors;
pub(crate) mod fetch;
pub(crate) mod own_queries;
pub(crate) mod reported_state;
pub(crate) mod statements;
pub(crate) mod variables;
pub(crate) mod verify;
