//! Holds what is decided of a statement: immutable values, and functions of nothing else.

pub(crate) mod execution_plan;
pub(crate) mod repetition;
pub(crate) mod requirements;
