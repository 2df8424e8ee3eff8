//! Keeps what a session may ask of its last statements: what only a connection still knows of it, and the copy that was
//! made.

pub(crate) mod conditions;
pub(crate) mod found_rows;
pub(crate) mod news;
pub(crate) mod previous_statement;
pub(crate) mod retained;
pub(crate) mod saved;
