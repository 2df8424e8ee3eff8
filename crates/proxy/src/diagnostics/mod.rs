//! Keeps what only a connection knows of a session: warnings, LAST_INSERT_ID(), FOUND_ROWS(), ROW_COUNT().

pub(crate) mod conditions;
pub(crate) mod found_rows;
pub(crate) mod get_diagnostics;
pub(crate) mod news;
pub(crate) mod previous_statement;
pub(crate) mod retained;
pub(crate) mod saved;
