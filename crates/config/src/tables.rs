//! From a file or the rows of a database to a configuration.

use std::ops::Range;
use std::path::PathBuf;

use toml_edit::{Item, Table, TableLike};

use crate::check::TableLines;
use crate::error::Report;
use crate::fields::{Fields, Source, line_of_key, quotable};
use crate::kept::{Kept, Reader};
use crate::password::{Password, Secret};
use crate::place::{Keyed, NOWHERE, Place};
use crate::rows::{Cell, TableRow, TableRows};
use crate::sockets::{Collision, Setting};
use crate::suggest::unknown_word;
use crate::types::{Config, MysqlServer, MysqlUser, ServerStatus};
use crate::user_attributes::user_attributes;
use crate::{
    TABLE_ROWS_MAX, admin_variables, check, clusters, hostgroups, listeners, names, peers, query_rules,
    server_tls, topology_table, variables,
};

/// Hostgroups, weights and counts are SQLite integers in ProxySQL; Weir keeps them within 31 bits.
pub(crate) const INT_MAX: u32 = i32::MAX as u32;
/// Four years, ProxySQL's limit of `max_replication_lag`.
const LAG_S_MAX: u32 = 126_144_000;
pub(crate) const COMMENT_CHARS_MAX: usize = 1024;
/// A DNS name has at most 253 characters (RFC 1035, 2.3.4, without the root).
const HOSTNAME_CHARS_MAX: usize = 253;
/// MariaDB allows 128 characters, MySQL 32.
pub(crate) const USERNAME_CHARS_MAX: usize = 128;
/// Identifiers have at most 64 characters.
pub(crate) const SCHEMA_CHARS_MAX: usize = 64;
/// Longer than any password that a server accepts in its authentication packets.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

/// Where the tables are.
#[derive(Clone, Copy)]
pub(crate) enum Tables<'t> {
    /// A file in TOML.
    File(&'t Table),
    /// A database; tables may be what they are in a configuration that is there.
    Rows(&'t TableRows, Option<Kept<'t>>),
}

/// Reads all tables and checks them, each alone and all together. What is kept is taken as it is, and checked with what it
/// refers to or is referred to by.
pub(crate) fn read(tables: Tables<'_>, report: &mut Report) -> Config {
    let kept = tables.kept();
    let mut config = kept.map(|kept| kept.config.clone()).unwrap_or_default();
    read_variables(tables, &mut config, report);
    let lines = TableLines {
        servers: fill(&mut config.servers, tables.rows("mysql_servers", report), server, report),
        ssl_params: {
            let mut rows = tables.rows("mysql_servers_ssl_params", report);
            rows.iter_mut().for_each(|rows| rows.retain(|row| server_tls::is_for_all_users(row, report)));
            fill(&mut config.servers_ssl_params, rows, server_tls::ssl_params, report)
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
        clusters: clusters::ClusterLines {
            galera: {
                let rows = tables.rows("mysql_galera_hostgroups", report);
                fill(&mut config.galera_hostgroups, rows, clusters::cluster_hostgroup, report)
            },
            group_replication: {
                let rows = tables.rows("mysql_group_replication_hostgroups", report);
                fill(&mut config.group_replication_hostgroups, rows, clusters::cluster_hostgroup, report)
            },
            replication: {
                let rows = tables.rows("mysql_replication_hostgroups", report);
                fill(&mut config.replication_hostgroups, rows, clusters::replication_hostgroup, report)
            },
        },
        listeners: {
            let rows = tables.rows("weir_listeners", report);
            fill(&mut config.weir_listeners, rows, listeners::listener, report)
        },
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
                reader.read(row, report, |row, report| query_rules::query_rule(row, &mut next_id, report))
            };
            let lines = fill(&mut config.query_rules, rows, rule, report);
            if !lines.are_kept() {
                config.told.rules = reader.told();
            }
            lines
        },
        fast: {
            let rows = tables.rows("mysql_query_rules_fast_routing", report);
            fill(&mut config.fast_routing, rows, query_rules::fast_route, report)
        },
    };
    check::across(&mut config, kept, &lines, report);
    read_rest(tables, &mut config, &lines.listeners, report);
    config
}

/// What is said of hostgroups, other programs and proxies, and what is not built.
fn read_rest(tables: Tables<'_>, config: &mut Config, listeners: &Lines<'_>, report: &mut Report) {
    let rows = tables.rows("mysql_hostgroup_attributes", report);
    let attributes = fill(&mut config.hostgroup_attributes, rows, hostgroups::attributes, report);
    let rows = tables.rows("weir_hostgroups", report);
    let own = fill(&mut config.weir_hostgroups, rows, hostgroups::weir_hostgroup, report);
    check::hostgroups(config, &attributes, &own, report);
    let (rows, mut next_id) = (tables.rows("scheduler", report), 1);
    let job = |row: &Row<'_>, report: &mut Report| peers::job(row, &mut next_id, report);
    let jobs = fill(&mut config.scheduler, rows, job, report);
    let rows = tables.rows("proxysql_servers", report);
    let proxies = fill(&mut config.proxysql_servers, rows, peers::proxy, report);
    peers::distinct(config, &jobs, &proxies, report);
    match tables {
        Tables::File(root) => {
            read_top(root, config, report);
            refuse_collisions(root, config, listeners, report);
        }
        Tables::Rows(rows, _) => {
            for (name, rows) in rows.tables().filter(|(name, _)| names::TABLES_NOT_BUILT.contains(name)) {
                if !rows.is_empty() {
                    let reason =
                        format!("{} rows without effect: {}", rows.len(), names::why_without_effect(name));
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
                config.variables = variables::read(Fields::new(&place, Source::File(table), report));
            }
            if let Some((table, place)) = table(root, "admin_variables", report) {
                config.admin = admin_variables::read(Fields::new(&place, Source::File(table), report));
            }
        }
        Tables::Rows(rows, _) => {
            let (mut mysql, mut admin) = (TableRow::new(), TableRow::new());
            for (full_name, value) in rows.variables() {
                let (of_module, name) = match full_name.split_once('-') {
                    Some((names::MYSQL, name)) => (&mut mysql, name),
                    Some((names::ADMIN, name)) => (&mut admin, name),
                    _ => {
                        report.tolerate(&Place::table(&quotable(full_name)), "", "unknown variable");
                        continue;
                    }
                };
                of_module.insert(name.to_owned().into(), value.clone());
            }
            if tables.reads("mysql-") {
                let place = Place::variables(names::MYSQL);
                config.variables = variables::read(Fields::new(&place, Source::Row(&mysql), report));
            }
            if tables.reads("admin-") {
                let place = Place::variables(names::ADMIN);
                config.admin = admin_variables::read(Fields::new(&place, Source::Row(&admin), report));
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
    top.finish(|name, value| names::leftover_table(name, value, is_empty(name)), names::TABLES_NOT_BUILT);
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

fn has_no_rows(item: &Item) -> bool {
    match item {
        Item::ArrayOfTables(rows) => rows.is_empty(),
        Item::Table(table) => table.is_empty(),
        Item::Value(value) => {
            value.as_array().is_some_and(toml_edit::Array::is_empty)
                || value.as_inline_table().is_some_and(toml_edit::InlineTable::is_empty)
        }
        Item::None => true,
    }
}

/// A row of a table before it is read.
pub(crate) struct Row<'t> {
    pub(crate) place: Place<'t>,
    pub(crate) source: Source<'t>,
}

/// Where the rows of a table stand, for checks that look at several rows.
pub(crate) enum Lines<'t> {
    Read(Vec<Place<'t>>),
    /// The table is as it was.
    Kept,
}

impl<'t> Lines<'t> {
    /// Where a row is. Rows that were refused shift the index, so this is only used when none was.
    pub(crate) fn at(&self, index: usize) -> &Place<'t> {
        match self {
            Self::Read(places) => places.get(index).unwrap_or(&NOWHERE),
            Self::Kept => &NOWHERE,
        }
    }

    /// The same for a row of a table that may be kept.
    pub(crate) fn of<'p>(&self, index: usize, row: &'p dyn Keyed) -> Place<'p>
    where
        't: 'p,
    {
        match self {
            Self::Read(_) => *self.at(index),
            Self::Kept => Place::in_force(row),
        }
    }

    /// Whether all `rows` are there: none was refused.
    pub(crate) fn are_complete<T>(&self, rows: &[T]) -> bool {
        match self {
            Self::Read(places) => places.len() == rows.len(),
            Self::Kept => true,
        }
    }

    /// Whether the table was not read.
    pub(crate) fn are_kept(&self) -> bool {
        matches!(self, Self::Kept)
    }
}

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

impl Keyed for MysqlUser {
    fn table(&self) -> &'static str {
        "mysql_users"
    }

    fn key(&self) -> TableRow {
        [("username".into(), self.username.clone().into())].into()
    }
}

impl<'t> Tables<'t> {
    fn kept(self) -> Option<Kept<'t>> {
        match self {
            Self::File(_) => None,
            Self::Rows(_, kept) => kept,
        }
    }

    fn place_of(self, name: &'static str, row: &'t TableRow) -> Place<'t> {
        let keyed = row.kept_at().zip(self.kept()).and_then(|(at, Kept { config, .. })| match name {
            "mysql_users" => config.users.get(at).map(|user| &**user as &dyn Keyed),
            _ => config.query_rules.get(at).map(|rule| &**rule as &dyn Keyed),
        });
        keyed.map_or_else(|| Place::row(name, row), Place::in_force)
    }

    /// Whether a table, or variables that begin so, are read.
    fn reads(self, name: &str) -> bool {
        self.kept().is_none_or(|kept| (kept.reads)(name))
    }

    /// The rows of a table; none if it is kept.
    fn rows(self, name: &'static str, report: &mut Report) -> Option<Vec<Row<'t>>> {
        if !self.reads(name) {
            return None;
        }
        let rows = match self {
            Self::File(root) => rows_of_file(root, name, report),
            Self::Rows(rows, _) => rows
                .of(name)
                .iter()
                .map(|row| Row { place: self.place_of(name, row), source: Source::Row(row) })
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

fn rows_of_file<'t>(root: &'t Table, name: &'static str, report: &mut Report) -> Vec<Row<'t>> {
    let line = line_of_key(root, name, report).unwrap_or(1);
    let tables: Vec<(Option<Range<usize>>, &dyn TableLike)> = match root.get(name) {
        None => return Vec::new(),
        Some(Item::ArrayOfTables(tables)) => {
            tables.iter().map(|table| (table.span(), table as &dyn TableLike)).collect()
        }
        Some(item) => {
            let list = item.as_array().map(|list| list.iter().map(|value| value.as_inline_table()));
            let Some(tables) = list.and_then(Iterator::collect::<Option<Vec<_>>>) else {
                report.refuse_line(line, name, format!("is a list of rows: write [[{name}]] above each"));
                return Vec::new();
            };
            tables.into_iter().map(|table| (table.span(), table as &dyn TableLike)).collect()
        }
    };
    let row = |(index, (span, table)): (usize, (Option<Range<usize>>, &'t dyn TableLike))| Row {
        place: Place::row_in_file(name, index, span.map_or(line, |span| report.line_of(span.start))),
        source: Source::File(table),
    };
    tables.into_iter().enumerate().map(row).collect()
}

/// A row of the database by its key: `mysql_servers (100, db1, 3306)`.
pub(crate) fn describe(table: &str, row: &TableRow) -> String {
    let key: &[&str] = match table {
        "mysql_servers" => &["hostgroup_id", "hostgroup", "hostname", "address", "port"],
        "mysql_servers_ssl_params" | "proxysql_servers" => &["hostname", "port", "username"],
        "mysql_users" => &["username"],
        "mysql_query_rules" => &["rule_id"],
        "mysql_query_rules_fast_routing" => &["username", "schemaname", "flagIN"],
        "weir_listeners" => &["address"],
        "mysql_hostgroup_attributes" | "weir_hostgroups" => &["hostgroup_id"],
        "scheduler" => &["id"],
        _ => &["writer_hostgroup"],
    };
    let value = |name: &&str| match row.get(name) {
        Some(Cell::Text(text)) => Some(quotable(text)),
        Some(Cell::Integer(number)) => Some(number.to_string()),
        Some(Cell::Real(number)) => Some(number.to_string()),
        Some(Cell::Null) | None => None,
    };
    let values: Vec<String> = key.iter().filter_map(value).collect();
    format!("{table} ({})", values.join(", "))
}

fn table<'t>(root: &'t Table, name: &'t str, report: &mut Report) -> Option<(&'t dyn TableLike, Place<'t>)> {
    let item = root.get(name)?;
    let line = line_of_key(root, name, report).unwrap_or(1);
    let table = item.as_table_like();
    if table.is_none() {
        report.refuse_line(line, name, format!("is a table: write [{name}] above its variables"));
    }
    table.map(|table| (table, Place::in_file(name, line)))
}

fn server(row: &Row<'_>, report: &mut Report) -> Option<MysqlServer> {
    let mut f = Fields::of(row, report);
    let hostgroup_id = hostgroup_with_alias(&mut f);
    let hostname = hostname(&mut f);
    let port = port(&mut f);
    let status = status(&mut f);
    let weight = f.integer("weight", 1, 0..=10_000_000);
    let max_connections = f.integer("max_connections", 1000, 0..=1_000_000);
    let max_latency_ms = f.integer("max_latency_ms", 0, 0..=INT_MAX);
    let max_replication_lag = f.integer("max_replication_lag", 0, 0..=LAG_S_MAX);
    let use_ssl = f.boolean("use_ssl", false);
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    for name in ["compression", "gtid_port"] {
        f.only(name, 0);
    }
    f.finish_row();
    let (hostgroup_id, hostname) = (hostgroup_id?, hostname?);
    Some(MysqlServer {
        hostgroup_id,
        hostname,
        port,
        status,
        weight,
        max_connections,
        max_latency_ms,
        use_ssl,
        max_replication_lag,
        comment,
    })
}

fn status(f: &mut Fields<'_, '_>) -> ServerStatus {
    let Some(written) = f.optional_text("status", 64) else { return ServerStatus::Online };
    let word = if f.is_row() { written.to_ascii_uppercase() } else { written };
    match word.as_str() {
        "ONLINE" => ServerStatus::Online,
        "OFFLINE_SOFT" => ServerStatus::OfflineSoft,
        "OFFLINE_HARD" => ServerStatus::OfflineHard,
        // ProxySQL writes down what it has observed.
        "SHUNNED" if f.is_row() => {
            f.tolerate("status", "SHUNNED is what is observed, not what is wanted: taken as ONLINE");
            ServerStatus::Online
        }
        word => {
            f.refuse("status", unknown_word(word, &["ONLINE", "OFFLINE_SOFT", "OFFLINE_HARD"]));
            ServerStatus::Online
        }
    }
}

/// `hostgroup_id`, or `hostgroup` as in ProxySQL's configuration file.
fn hostgroup_with_alias(f: &mut Fields<'_, '_>) -> Option<u32> {
    let name = aliased(f, "hostgroup_id", "hostgroup")?;
    required_hostgroup(f, name)
}

/// The one of `name` and `alias` that is given.
fn aliased(f: &mut Fields<'_, '_>, name: &'static str, alias: &'static str) -> Option<&'static str> {
    f.item(name);
    f.item(alias);
    match (f.has(name), f.has(alias)) {
        (true, true) => {
            f.refuse(alias, format!("is the same as {name}: give one of them"));
            Some(name)
        }
        (false, true) => Some(alias),
        (true, false) => Some(name),
        (false, false) => {
            f.refuse(name, "is missing");
            None
        }
    }
}

pub(crate) fn required_hostgroup(f: &mut Fields<'_, '_>, name: &'static str) -> Option<u32> {
    if f.item(name).is_none() {
        f.refuse(name, "is missing");
        return None;
    }
    let id = f.integer(name, u32::MAX, 0..=INT_MAX);
    (id != u32::MAX).then_some(id)
}

/// `hostname`, or `address` as in ProxySQL's configuration file.
pub(crate) fn hostname(f: &mut Fields<'_, '_>) -> Option<String> {
    let name = aliased(f, "hostname", "address")?;
    let host = f.optional_text(name, HOSTNAME_CHARS_MAX)?;
    let fault = if host.is_empty() {
        Some("is empty".to_owned())
    } else if host.contains('/') {
        Some(format!("\"{host}\": connections to a server's Unix socket are not built yet"))
    } else if host.parse::<std::net::Ipv6Addr>().is_ok() {
        None
    } else if host.contains(':') {
        Some(format!("\"{host}\" is not a host name or address (the port is a key of its own)"))
    } else if host.contains(|c: char| c.is_whitespace() || !c.is_ascii_graphic()) {
        Some(format!("\"{host}\" is not a host name or address"))
    } else {
        None
    };
    match fault {
        Some(fault) => {
            f.refuse(name, fault);
            None
        }
        None => Some(host),
    }
}

pub(crate) fn port(f: &mut Fields<'_, '_>) -> u16 {
    port_or(f, 3306)
}

pub(crate) fn port_or(f: &mut Fields<'_, '_>, default: u16) -> u16 {
    let Some(number) = f.any_integer("port") else { return default };
    match u16::try_from(number) {
        Ok(port) if port > 0 => port,
        _ => {
            f.refuse("port", format!("{number} is not a port (1..65535)"));
            default
        }
    }
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
            let reason = "0 is not built yet: the row is left out, servers are shown what clients have shown";
            report.tolerate(&row.place, "frontend", reason);
        }
        !is_for_servers_only
    });
    Some(rows)
}

fn user(row: &Row<'_>, report: &mut Report) -> Option<MysqlUser> {
    let mut f = Fields::of(row, report);
    let username = f.optional_text("username", USERNAME_CHARS_MAX);
    if username.as_deref() == Some("") {
        f.refuse("username", "is empty");
    }
    if !f.has("username") {
        f.refuse("username", "is missing");
    }
    let written = f.secret_text("password", PASSWORD_BYTES_MAX).unwrap_or_default();
    let password = Password::parse(&written).unwrap_or_else(|fault| {
        f.refuse("password", fault);
        Password::Clear(Secret::new(""))
    });
    let active = f.boolean("active", true);
    let use_ssl = f.boolean("use_ssl", false);
    let default_hostgroup = f.integer("default_hostgroup", 0, 0..=INT_MAX);
    let default_schema = f.optional_text("default_schema", SCHEMA_CHARS_MAX).filter(|name| !name.is_empty());
    let max_connections = f.integer("max_connections", 10_000, 0..=1_000_000);
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    for name in ["frontend", "backend"] {
        f.only(name, 1);
    }
    let transaction_persistent = f.boolean("transaction_persistent", true);
    let schema_locked = f.boolean("schema_locked", false);
    let fast_forward = f.boolean("fast_forward", false);
    let attributes = user_attributes(&mut f, &password);
    f.finish_row();
    let username = username.filter(|name| !name.is_empty())?;
    Some(MysqlUser {
        username,
        password,
        active,
        use_ssl,
        default_hostgroup,
        default_schema,
        schema_locked,
        fast_forward,
        transaction_persistent,
        default_isolation: attributes.isolation,
        additional_password: attributes.additional_password,
        max_connections,
        comment,
    })
}
