//! What the programs that measure have in common: the machine, figures in short, tables for people.

mod machine;
mod stats;
mod table;

pub use machine::Machine;
pub use stats::{Spread, percentile};
pub use table::{aligned, markdown};
