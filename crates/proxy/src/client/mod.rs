//! Takes in what clients send: their logins and their commands.

pub(crate) mod backpressure;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod login;
pub(crate) mod long_data;
pub(crate) mod prepared;
pub(crate) mod proxy_header;
pub(crate) mod query_attributes;
pub(crate) mod rare_commands;
pub(crate) mod upload;
