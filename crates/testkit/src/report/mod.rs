//! Helpers that the measuring programs share: the machine, short figures, tables for people.

mod machine;
mod stats;
mod table;

pub use machine::Machine;
pub use stats::{Spread, percentile};
pub use table::{aligned, markdown};
