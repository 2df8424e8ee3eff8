//! Speaks to servers: the state of each connection, the replies it owes, and Weir's own statements there. Knows a
//! session only by its key.

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
