//! Reads and writes the MySQL client/server protocol as MariaDB and MySQL speak it, without I/O.
//!
//! Everything here is bytes in, views or bytes out: parsers borrow from the payload they are
//! given and never allocate, builders append to a `Vec<u8>` of the caller. No parser panics or
//! reads beyond its input, whatever the input is.
//!
//! A *packet* is a four byte header ([`frame`]) and a *payload*. Types that are a payload have
//! `parse(payload)` and `write(&self, out)`, which appends the payload only;
//! [`frame::packet`] puts the header around it.
//!
//! Where to start: [`frame`] for packet boundaries, [`handshake`] and [`auth`] for logging in,
//! [`command`] for what a client asks, [`ok`] for what the server says at the end of it.
//!
//! Only protocol version 10 with `CLIENT_PROTOCOL_41` is spoken: MySQL 4.1 and later.

#![forbid(unsafe_code)]

pub mod auth;
pub mod capability;
pub mod charset;
pub mod command;
pub mod error;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod handshake;
pub mod ok;
pub mod proxy_header;
pub mod response;
pub mod resultset;
pub mod sqlstate;
pub mod status;
pub mod wire;
