//! Reads result sets, and writes those that Weir answers itself.
//!
//! A column count, the columns' definitions, the rows; then OK with header 0xFE if DEPRECATE_EOF
//! is agreed, and otherwise EOF, with another EOF between definitions and rows. (MySQL internals
//! manual, "COM_QUERY Response".)

mod column;
mod row;
mod text_result;

pub use column::{ColumnDefinition, ColumnFlags, ColumnType};
pub use row::{BinaryValue, TextRow, put_binary_row, put_text_row};
pub use text_result::TextResult;
