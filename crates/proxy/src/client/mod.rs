//! Clients: their sessions, their commands, and the replies that Weir gives itself.

pub(crate) mod backpressure;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod eof_packets;
pub(crate) mod explain_for;
pub(crate) mod greeting;
pub(crate) mod local_infile;
pub(crate) mod login_schema;
pub(crate) mod long_data;
pub(crate) mod own_replies;
pub(crate) mod parameters;
pub(crate) mod prepared;
pub(crate) mod query_attributes;
pub(crate) mod rare_commands;
pub(crate) mod refused_logins;
pub(crate) mod result_buffer;
pub(crate) mod session;
pub(crate) mod session_track;
pub(crate) mod sessions;
pub(crate) mod status_flags;
pub(crate) mod upload;
