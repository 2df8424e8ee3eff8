//! Serves clients: their logins, their commands, the replies that Weir gives itself, and how they go.

pub(crate) mod backpressure;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod eof_packets;
pub(crate) mod local_infile;
pub(crate) mod login;
pub(crate) mod login_schema;
pub(crate) mod long_data;
pub(crate) mod prepared;
pub(crate) mod query_attributes;
pub(crate) mod rare_commands;
pub(crate) mod refused_logins;
pub(crate) mod replies;
pub(crate) mod result_buffer;
pub(crate) mod upload;
