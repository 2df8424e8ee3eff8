//! Reads one value of a table or a row.

pub(crate) mod fields;
pub(crate) mod kind;
