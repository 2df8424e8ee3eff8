//! Connections to servers: set-up, state, and replies.

pub(crate) mod completion_type;
pub(crate) mod connection;
pub(crate) mod defaults;
pub(crate) mod own_replies;
pub(crate) mod prepare_connection;
pub(crate) mod relay;
pub(crate) mod replies;
pub(crate) mod reported_state;
pub(crate) mod setup;
pub(crate) mod statement_end;
pub(crate) mod verify;
