//! Manages what only a connection still knows of a session.

pub(crate) mod found_rows;
pub(crate) mod news;
pub(crate) mod previous_statement;
pub(crate) mod retained;
