//! Decides what a statement is, what the rules say of it, and where it may run.

pub(crate) mod dialect;
pub(crate) mod execution_plan;
pub(crate) mod literals;
pub(crate) mod multi_statement;
pub(crate) mod read_only;
pub(crate) mod route;
