//! Lists all tables that the admin interface has, by schema: THE list, from which the others look up names and columns.
//!
//! Names, columns, defaults and constraints of ProxySQL's tables are its interface (its manual, "Main (runtime)",
//! "Stats" and "Monitor"); tables that begin with `weir_` or `stats_weir_` are Weir's own.

use std::sync::LazyLock;

mod config;
mod history;
mod monitor;
mod stats;

/// The unit of configuration that LOAD and SAVE move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Module {
    /// Servers, what is said of hostgroups, and clusters.
    MysqlServers,
    /// Accounts.
    MysqlUsers,
    /// Query rules and fast routing.
    MysqlQueryRules,
    /// `mysql-` variables and `weir_listeners`.
    MysqlVariables,
    /// The firewall's whitelists.
    MysqlFirewall,
    /// `admin-` variables.
    AdminVariables,
    /// Programs that run at intervals.
    Scheduler,
    /// The other proxies of the cluster.
    ProxysqlServers,
    /// Scripts behind URLs.
    Restapi,
}

impl Module {
    /// All modules, in the order in which they are loaded: who is referred to comes before who refers.
    pub const ALL: [Self; 9] = [
        Self::AdminVariables,
        Self::MysqlVariables,
        Self::MysqlServers,
        Self::MysqlUsers,
        Self::MysqlQueryRules,
        Self::MysqlFirewall,
        Self::Scheduler,
        Self::ProxysqlServers,
        Self::Restapi,
    ];

    /// The name in `runtime_checksums_values`.
    pub fn name(self) -> &'static str {
        match self {
            Self::MysqlServers => "mysql_servers",
            Self::MysqlUsers => "mysql_users",
            Self::MysqlQueryRules => "mysql_query_rules",
            Self::MysqlVariables => "mysql_variables",
            Self::MysqlFirewall => "mysql_firewall",
            Self::AdminVariables => "admin_variables",
            Self::Scheduler => "scheduler",
            Self::ProxysqlServers => "proxysql_servers",
            Self::Restapi => "restapi",
        }
    }

    /// Its tables, without schema.
    pub fn tables(self) -> impl Iterator<Item = &'static TableDef> {
        tables().iter().filter(move |table| table.schema == MAIN && table.is_of(self))
    }

    /// The module of what begins with the name of a variable or of a table without schema, as faults of the
    /// configuration do.
    pub fn of(about: &str) -> Option<Self> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let name = about.split(|letter| !is_name(letter)).next().unwrap_or_default();
        Self::ALL.into_iter().find(|module| match module.variable_prefix() {
            Some(prefix) if about.starts_with(prefix) => true,
            _ => module.tables().any(|table| table.name == name && name != GLOBAL_VARIABLES),
        })
    }

    /// Of `global_variables` a module has the rows whose names begin so.
    pub(crate) fn variable_prefix(self) -> Option<&'static str> {
        match self {
            Self::MysqlVariables => Some("mysql-"),
            Self::AdminVariables => Some("admin-"),
            _ => None,
        }
    }
}

/// What is being edited; `runtime_` twins show what is in force.
pub const MAIN: &str = "main";
/// What was saved, in the datadir.
pub const DISK: &str = "disk";
/// Counters.
pub const STATS: &str = "stats";
/// What was counted, hour by hour, in the datadir.
pub const STATS_HISTORY: &str = "stats_history";
/// What probes saw.
pub const MONITOR: &str = "monitor";
/// What was loaded to runtime last. Not shown: `main.runtime_` tables are.
pub(crate) const INTENT: &str = "intent";

/// The schemas that an admin sees, in the order of SHOW DATABASES.
pub const SCHEMAS: [&str; 5] = [MAIN, DISK, STATS, MONITOR, STATS_HISTORY];

/// The table of variables, of which two modules have their rows.
pub const GLOBAL_VARIABLES: &str = "global_variables";

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// `INT`, `INTEGER`
    Integer,
    /// `VARCHAR`
    Text,
    /// `DOUBLE`
    Real,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: ColumnKind,
    /// How it is declared, without the name.
    declaration: &'static str,
}

impl Column {
    /// Whether a row may have no value there.
    pub(crate) fn may_be_null(&self) -> bool {
        !self.declaration.contains("NOT NULL") && !self.declaration.contains("PRIMARY KEY")
    }
}

/// A table of one schema.
#[derive(Clone, Debug)]
pub struct TableDef {
    /// One of [`SCHEMAS`].
    pub schema: &'static str,
    /// Its name, without schema.
    pub name: String,
    /// Of tables of configuration in `main` and `disk`: whose they are; `global_variables` is of two modules and has
    /// the first.
    pub module: Option<Module>,
    /// Its columns in order.
    pub columns: Vec<Column>,
    /// `CREATE TABLE name (...)`, without schema.
    pub ddl: String,
}

impl TableDef {
    /// Whether it has rows of `module`.
    pub fn is_of(&self, module: Module) -> bool {
        match self.name.as_str() {
            GLOBAL_VARIABLES => self.module.is_some() && module.variable_prefix().is_some(),
            _ => self.module == Some(module),
        }
    }

    /// Whether it shows what is in force, and is not edited.
    pub fn is_runtime(&self) -> bool {
        self.name.starts_with("runtime_")
    }

    fn new(schema: &'static str, declared: &Declared, name: String, module: Option<Module>) -> Self {
        let columns: Vec<Column> = declared
            .columns
            .iter()
            .map(|(name, declaration)| Column { name, kind: kind_of(declaration), declaration })
            .collect();
        let mut lines: Vec<String> =
            columns.iter().map(|column| format!("    {} {}", column.name, column.declaration)).collect();
        lines.extend(declared.constraints.iter().map(|constraint| format!("    {constraint}")));
        let ddl = format!("CREATE TABLE {name} (\n{}\n)", lines.join(",\n"));
        Self { schema, name, module, columns, ddl }
    }
}

fn kind_of(declaration: &str) -> ColumnKind {
    match declaration.split(' ').next() {
        Some("VARCHAR") => ColumnKind::Text,
        Some("DOUBLE") => ColumnKind::Real,
        _ => ColumnKind::Integer,
    }
}

/// A table as this crate writes it down.
struct Declared {
    name: &'static str,
    module: Option<Module>,
    columns: &'static [(&'static str, &'static str)],
    constraints: &'static [&'static str],
    /// Whether reading `<name>_reset` shows the same and begins to count again.
    has_reset: bool,
}

/// All tables of all schemas.
pub fn tables() -> &'static [TableDef] {
    static TABLES: LazyLock<Vec<TableDef>> = LazyLock::new(all);
    &TABLES
}

/// The table of this name in a schema. Names in SQL are of any case.
pub fn table(schema: &str, name: &str) -> Option<&'static TableDef> {
    tables()
        .iter()
        .find(|table| table.schema.eq_ignore_ascii_case(schema) && table.name.eq_ignore_ascii_case(name))
}

fn all() -> Vec<TableDef> {
    let mut tables = Vec::new();
    for declared in config::tables() {
        let declared = &declared;
        for schema in [MAIN, DISK] {
            tables.push(TableDef::new(schema, declared, declared.name.to_owned(), declared.module));
        }
        tables.push(TableDef::new(MAIN, declared, format!("runtime_{}", declared.name), None));
    }
    for declared in config::RUNTIME_ONLY {
        tables.push(TableDef::new(MAIN, declared, declared.name.to_owned(), None));
    }
    let loaded = config::loaded_servers();
    tables.extend(loaded.map(|declared| TableDef::new(MAIN, &declared, declared.name.to_owned(), None)));
    for declared in config::DISK_ONLY {
        tables.push(TableDef::new(DISK, declared, declared.name.to_owned(), None));
    }
    for (schema, of_schema) in
        [(STATS, stats::TABLES), (MONITOR, monitor::TABLES), (STATS_HISTORY, history::TABLES)]
    {
        for declared in of_schema {
            tables.push(TableDef::new(schema, declared, declared.name.to_owned(), None));
            if declared.has_reset {
                tables.push(TableDef::new(schema, declared, format!("{}_reset", declared.name), None));
            }
        }
    }
    tables
}
