//! Gathers faults, and tells where they are.

pub(crate) mod error;
pub(crate) mod place;
