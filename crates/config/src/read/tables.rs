//! Makes a configuration of a file or of the rows of a database.

use std::path::PathBuf;

use toml_edit::Table;

use crate::check::clusters::ClusterLines;
use crate::check::cross_table::TableLines;
use crate::check::{cross_table, peers};
use crate::field::fields::{Fields, Row, Source};
use crate::model::config::Config;
use crate::model::partial_read::PartialRead;
use crate::model::sockets::{Collision, Setting};
use crate::read::changed_rows::Reader;
use crate::read::clusters::{cluster_hostgroup, replication_hostgroup};
use crate::read::file::{has_no_rows, rows_of_file, table};
use crate::read::hostgroups::{attributes, weir_hostgroup};
use crate::read::listeners::listener;
use crate::read::peers::{job, proxy};
use crate::read::query_rules::{fast_route, query_rule};
use crate::read::server_tls::{is_for_all_users, ssl_params};
use crate::read::servers::server;
use crate::read::topology_table;
use crate::read::unread_keys::{leftover_table, read_module, why_without_effect};
use crate::read::users::user;
use crate::report::error::Report;
use crate::report::place::{Keyed, Lines, Place};
use crate::table::column::Column;
use crate::table::variable::{ADMIN, MYSQL};
use crate::table::{tables, unbuilt};
use crate::value::rows::{Cell, TableRow, TableRows};
use crate::value::suggest::quotable;

/// The most rows one table may have.
pub const TABLE_ROWS_MAX: usize = 200_000;

/// The source of the tables.
#[derive(Clone, Copy)]
pub(crate) enum Tables<'t> {
    /// A file in TOML.
    File(&'t Table),
    /// A database; tables may be what they are in a configuration that is there.
    Rows(&'t TableRows, Option<PartialRead<'t>>),
}

/// Reads all tables and checks them, each alone and all together. What is kept is taken as it is, and checked with what it
/// refers to or is referred to by.
pub(crate) fn read(tables: Tables<'_>, report: &mut Report) -> Config {
    let kept = tables.kept();
    let mut config = kept.map(|kept| kept.config.clone()).unwrap_or_default();
    read_variables(tables, &mut config, report);
    let lines = TableLines {
        servers: tables.read("mysql_servers", &mut config.servers, server, report),
        ssl_params: {
            let mut rows = tables.rows("mysql_servers_ssl_params", report);
            rows.iter_mut().for_each(|rows| rows.retain(|row| is_for_all_users(row, report)));
            fill(&mut config.servers_ssl_params, rows, ssl_params, report)
        },
        users: {
            let mut reader = Reader::after(kept.map(|kept| kept.config.users.as_slice()).unwrap_or_default());
            let user = |row: &Row<'_>, report: &mut Report| reader.read(row, report, user);
            let lines = fill(&mut config.users, users(tables, report), user, report);
            if !lines.are_kept() {
                config.told.users = reader.told();
            }
            lines
        },
        clusters: ClusterLines {
            galera: tables.read(
                "mysql_galera_hostgroups",
                &mut config.galera_hostgroups,
                cluster_hostgroup,
                report,
            ),
            group_replication: tables.read(
                "mysql_group_replication_hostgroups",
                &mut config.group_replication_hostgroups,
                cluster_hostgroup,
                report,
            ),
            replication: tables.read(
                "mysql_replication_hostgroups",
                &mut config.replication_hostgroups,
                replication_hostgroup,
                report,
            ),
        },
        listeners: tables.read("weir_listeners", &mut config.weir_listeners, listener, report),
        topology: {
            let rows = tables.rows("weir_topology", report);
            let mut read = std::mem::take(&mut config.weir_topology);
            let topology =
                |row: &Row<'_>, report: &mut Report| topology_table::weir_topology(row, &config, report);
            let lines = fill(&mut read, rows, topology, report);
            config.weir_topology = read;
            lines
        },
        rules: {
            let rows = tables.rows("mysql_query_rules", report);
            let before = kept.map(|kept| kept.config.query_rules.as_slice()).unwrap_or_default();
            let (mut reader, mut next_id) = (Reader::after(before), 1);
            let rule = |row: &Row<'_>, report: &mut Report| {
                reader.read(row, report, |row, report| query_rule(row, &mut next_id, report))
            };
            let lines = fill(&mut config.query_rules, rows, rule, report);
            if !lines.are_kept() {
                config.told.rules = reader.told();
            }
            lines
        },
        fast: tables.read("mysql_query_rules_fast_routing", &mut config.fast_routing, fast_route, report),
    };
    cross_table::across(&mut config, kept, &lines, report);
    read_rest(tables, &mut config, &lines.listeners, report);
    config
}

/// What is said of hostgroups, other programs and proxies, and what is not built.
fn read_rest(tables: Tables<'_>, config: &mut Config, listeners: &Lines<'_>, report: &mut Report) {
    let attributes =
        tables.read("mysql_hostgroup_attributes", &mut config.hostgroup_attributes, attributes, report);
    let own = tables.read("weir_hostgroups", &mut config.weir_hostgroups, weir_hostgroup, report);
    cross_table::hostgroups(config, &attributes, &own, report);
    let mut next_id = 1;
    let job = |row: &Row<'_>, report: &mut Report| job(row, &mut next_id, report);
    let jobs = tables.read("scheduler", &mut config.scheduler, job, report);
    let proxies = tables.read("proxysql_servers", &mut config.proxysql_servers, proxy, report);
    peers::distinct(config, &jobs, &proxies, report);
    match tables {
        Tables::File(root) => {
            read_top(root, config, report);
            refuse_collisions(root, config, listeners, report);
        }
        Tables::Rows(rows, _) => {
            for (name, rows) in rows.tables().filter(|(name, _)| unbuilt::TABLES.contains(name)) {
                if !rows.is_empty() {
                    let reason = format!("{} rows without effect: {}", rows.len(), why_without_effect(name));
                    report.tolerate(&Place::table(name), "", reason);
                }
            }
        }
    }
}

/// Only a file tells the `datadir`, in which one of the sockets is.
fn refuse_collisions(root: &Table, config: &Config, listeners: &Lines<'_>, report: &mut Report) {
    for Collision { setting, reason } in config.socket_collisions() {
        let (name, key) = match setting {
            Setting::Listener(index) => {
                report.refuse(listeners.at(index), "address", reason);
                continue;
            }
            Setting::Interfaces => ("mysql_variables", "interfaces"),
            Setting::MysqlIfaces => ("admin_variables", "mysql_ifaces"),
        };
        match table(root, name, report) {
            Some((table, place)) => Fields::new(&place, Source::File(table), report).refuse(key, reason),
            None => report.refuse(&Place::in_file(name, 1), key, reason),
        }
    }
}

/// `[mysql_variables]` and `[admin_variables]`, or `global_variables`.
fn read_variables(tables: Tables<'_>, config: &mut Config, report: &mut Report) {
    match tables {
        Tables::File(root) => {
            if let Some((table, place)) = table(root, "mysql_variables", report) {
                config.variables = read_module(MYSQL, Fields::new(&place, Source::File(table), report));
            }
            if let Some((table, place)) = table(root, "admin_variables", report) {
                config.admin = read_module(ADMIN, Fields::new(&place, Source::File(table), report));
            }
        }
        Tables::Rows(rows, _) => {
            let (mut mysql, mut admin) = (TableRow::new(), TableRow::new());
            for (full_name, value) in rows.variables() {
                let (of_module, name) = match full_name.split_once('-') {
                    Some((MYSQL, name)) => (&mut mysql, name),
                    Some((ADMIN, name)) => (&mut admin, name),
                    _ => {
                        report.tolerate(&Place::table(&quotable(full_name)), "", "unknown variable");
                        continue;
                    }
                };
                of_module.insert(name.to_owned().into(), value.clone());
            }
            if tables.reads("mysql-") {
                let place = Place::variables(MYSQL);
                config.variables = read_module(MYSQL, Fields::new(&place, Source::Row(&mysql), report));
            }
            if tables.reads("admin-") {
                let place = Place::variables(ADMIN);
                config.admin = read_module(ADMIN, Fields::new(&place, Source::Row(&admin), report));
            }
        }
    }
}

/// The keys of a file that are no tables of rows.
fn read_top(root: &Table, config: &mut Config, report: &mut Report) {
    let place = Place::in_file("", 1);
    let mut top = Fields::new(&place, Source::File(root), report);
    for name in TABLES {
        top.item(name);
    }
    match top.optional_text("datadir", 4096) {
        Some(path) if path.is_empty() => top.refuse("datadir", "is empty"),
        Some(path) => config.datadir = PathBuf::from(path),
        None => {}
    }
    let is_empty = |name: &str| root.get(name).is_some_and(has_no_rows);
    top.finish(|name, value| leftover_table(name, value, is_empty(name)), unbuilt::TABLES);
}

const TABLES: [&str; 16] = [
    "mysql_servers",
    "mysql_servers_ssl_params",
    "mysql_users",
    "mysql_galera_hostgroups",
    "mysql_group_replication_hostgroups",
    "mysql_replication_hostgroups",
    "mysql_query_rules",
    "mysql_query_rules_fast_routing",
    "weir_listeners",
    "mysql_hostgroup_attributes",
    "weir_hostgroups",
    "weir_topology",
    "scheduler",
    "proxysql_servers",
    "mysql_variables",
    "admin_variables",
];

/// Reads rows one by one, in place of those that are there; without rows, the table is kept.
fn fill<'t, T, I: From<Vec<T>>>(
    into: &mut I,
    rows: Option<Vec<Row<'t>>>,
    mut read: impl FnMut(&Row<'_>, &mut Report) -> Option<T>,
    report: &mut Report,
) -> Lines<'t> {
    let Some(rows) = rows else { return Lines::Kept };
    let mut all = Vec::with_capacity(rows.len());
    all.extend(rows.iter().filter_map(|row| read(row, report)));
    *into = all.into();
    Lines::Read(rows.into_iter().map(|row| row.place).collect())
}

impl<'t> Tables<'t> {
    fn kept(self) -> Option<PartialRead<'t>> {
        match self {
            Self::File(_) => None,
            Self::Rows(_, kept) => kept,
        }
    }

    fn place_of(self, name: &'static str, row: &'t TableRow) -> Place<'t> {
        let keyed = row.kept_at().zip(self.kept()).and_then(|(at, PartialRead { config, .. })| match name {
            "mysql_users" => config.users.get(at).map(|user| &**user as &dyn Keyed),
            _ => config.query_rules.get(at).map(|rule| &**rule as &dyn Keyed),
        });
        keyed.map_or_else(|| Place::row(name, row), Place::in_force)
    }

    /// Whether a table, or variables that begin so, are read.
    fn reads(self, name: &str) -> bool {
        self.kept().is_none_or(|kept| (kept.reads)(name))
    }

    /// [`fill`] with the rows of a table.
    fn read<T, I: From<Vec<T>>>(
        self,
        name: &'static str,
        into: &mut I,
        read: impl FnMut(&Row<'_>, &mut Report) -> Option<T>,
        report: &mut Report,
    ) -> Lines<'t> {
        fill(into, self.rows(name, report), read, report)
    }

    /// The rows of a table; none if it is kept.
    fn rows(self, name: &'static str, report: &mut Report) -> Option<Vec<Row<'t>>> {
        if !self.reads(name) {
            return None;
        }
        let columns = columns_of(name);
        let rows = match self {
            Self::File(root) => rows_of_file(root, name, columns, report),
            Self::Rows(rows, _) => rows
                .of(name)
                .iter()
                .map(|row| Row { columns, place: self.place_of(name, row), source: Source::Row(row) })
                .collect(),
        };
        if rows.len() > TABLE_ROWS_MAX {
            let line = rows.first().map_or(0, |row| row.place.line());
            report.refuse_line(line, name, format!("{} rows, more than {TABLE_ROWS_MAX}", rows.len()));
            return Some(Vec::new());
        }
        Some(rows)
    }
}

fn columns_of(table: &str) -> &'static [Column] {
    tables().iter().find(|known| known.name == table).map_or(&[], |table| table.columns)
}

/// The rows of users. ProxySQL's database may have two of one user, for clients and for servers: Weir shows servers
/// what clients have shown, so the one for servers only is left out.
fn users<'t>(tables: Tables<'t>, report: &mut Report) -> Option<Vec<Row<'t>>> {
    let mut rows = tables.rows("mysql_users", report)?;
    let Tables::Rows(..) = tables else { return Some(rows) };
    rows.retain(|row| {
        let Source::Row(cells) = row.source else { return true };
        let is_for_servers_only = cells.get("frontend") == Some(&Cell::Integer(0));
        if is_for_servers_only {
            let reason = "0 is not built yet: the row is ignored, and Weir logs in at servers with the client's password";
            report.tolerate(&row.place, "frontend", reason);
        }
        !is_for_servers_only
    });
    Some(rows)
}
