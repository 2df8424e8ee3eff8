//! Decides what a statement is, what the rules say of it, and where it may run.

pub(crate) mod execution_plan;
