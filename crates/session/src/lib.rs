//! Models a session as state, without I/O: logins, tracked state, pins, prepared statements, and what a client is
//! shown of session tracking. The proxy's core puts them together.

#![forbid(unsafe_code)]

pub mod accounts;
pub mod defaults;
pub mod login;
pub mod pin;
pub mod prepared;
pub mod remains;
pub mod state;
pub mod track;
pub mod user_variables;
