//! Helps to tell people and programs what was measured: the machine, middles and ends, tables, files.

mod file;
mod machine;
mod spread;
mod table;

pub use file::{claim, write, write_json};
pub use machine::Machine;
pub use spread::{Spread, percentile};
pub use table::{aligned, capitalised, markdown};
