//! Lists what the configuration has: tables with their columns, and the variables without effect.

pub(crate) mod column;
pub(crate) mod columns;
pub(crate) mod unbuilt;
pub(crate) mod variable;

/// The tables of a configuration with their columns, in the order of their checksums.
pub fn tables() -> &'static [column::Table] {
    columns::TABLES
}
