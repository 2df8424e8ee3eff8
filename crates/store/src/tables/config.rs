//! Makes the tables of configuration, in `main`, in `disk`, and as `main.runtime_...`, of those that the configuration's reader
//! lists; and lists those beside them.

use super::{Declared, Module};

const NAME: &str = "VARCHAR NOT NULL";

/// The tables that are edited.
pub(super) fn tables() -> impl Iterator<Item = Declared> {
    weir_config::tables().iter().map(declared)
}

/// Its texts live as long as the program, as the list of tables does.
fn declared(table: &weir_config::Table) -> Declared {
    let column = |column: &weir_config::Column| -> (&'static str, &'static str) {
        (column.name, column.declaration().leak())
    };
    Declared {
        name: table.name,
        module: Module::ALL.into_iter().find(|module| module.name() == table.module),
        columns: table.columns.iter().map(column).collect::<Vec<_>>().leak(),
        constraints: table.constraints,
        has_reset: false,
    }
}

/// What was loaded, where runtime_mysql_servers shows what is observed.
pub(super) fn loaded_servers() -> Option<Declared> {
    let servers = tables().find(|table| table.name == "mysql_servers")?;
    Some(Declared { name: "runtime_weir_loaded_servers", module: None, ..servers })
}

/// Tables of `main` that nobody edits and that have no twin.
pub(super) const RUNTIME_ONLY: &[Declared] = &[Declared {
    name: "runtime_checksums_values",
    module: None,
    columns: &[
        ("name", "VARCHAR NOT NULL PRIMARY KEY"),
        ("version", "INT NOT NULL"),
        ("epoch", "INT NOT NULL"),
        ("checksum", NAME),
    ],
    constraints: &[],
    has_reset: false,
}];

/// Tables of `disk` that nobody edits.
pub(super) const DISK_ONLY: &[Declared] = &[Declared {
    // When what is saved was made, so that a proxy that comes back knows how old its configuration is.
    name: "weir_saved_epochs",
    module: None,
    columns: &[("name", "VARCHAR NOT NULL PRIMARY KEY"), ("epoch", "INT NOT NULL"), ("checksum", NAME)],
    constraints: &[],
    has_reset: false,
}];
