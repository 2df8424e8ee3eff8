//! From the TOML document to rows.

use std::ops::Range;
use std::path::PathBuf;

use toml_edit::{Item, Table, TableLike};

use crate::error::Report;
use crate::fields::{Fields, line_of_key};
use crate::password::{Password, Secret};
use crate::suggest::unknown_word;
use crate::types::{Config, MysqlServer, MysqlUser, ServerStatus};
use crate::user_attributes::user_attributes;
use crate::{
    TABLE_ROWS_MAX, check, clusters, hostgroups, listeners, names, query_rules, server_tls, topology_table,
    variables,
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

/// Reads the whole document.
pub(crate) fn read(root: &Table, report: &mut Report) -> Config {
    let mut config = Config::default();
    let servers = rows(root, "mysql_servers", report);
    let users = rows(root, "mysql_users", report);
    let galera = rows(root, "mysql_galera_hostgroups", report);
    let attributes = rows(root, "mysql_hostgroup_attributes", report);
    let own = rows(root, "weir_hostgroups", report);
    config.servers = servers.iter().filter_map(|row| server(row, report)).collect();
    config.users = users.iter().filter_map(|row| user(row, report)).collect();
    let cluster = |row, report: &mut Report| clusters::cluster_hostgroup(row, report);
    config.galera_hostgroups = galera.iter().filter_map(|row| cluster(row, report)).collect();
    let groups = rows(root, "mysql_group_replication_hostgroups", report);
    config.group_replication_hostgroups = groups.iter().filter_map(|row| cluster(row, report)).collect();
    let replication = rows(root, "mysql_replication_hostgroups", report);
    config.replication_hostgroups =
        replication.iter().filter_map(|row| clusters::replication_hostgroup(row, report)).collect();
    let topology = rows(root, "weir_topology", report);
    config.weir_topology =
        topology.iter().filter_map(|row| topology_table::weir_topology(row, &config, report)).collect();
    let ssl_params = rows(root, "mysql_servers_ssl_params", report);
    config.servers_ssl_params =
        ssl_params.iter().filter_map(|row| server_tls::ssl_params(row, report)).collect();
    let listening = rows(root, "weir_listeners", report);
    config.weir_listeners = listening.iter().filter_map(|row| listeners::listener(row, report)).collect();
    config.hostgroup_attributes =
        attributes.iter().filter_map(|row| hostgroups::attributes(row, report)).collect();
    config.weir_hostgroups = own.iter().filter_map(|row| hostgroups::weir_hostgroup(row, report)).collect();
    let rules = rows(root, "mysql_query_rules", report);
    let fast = rows(root, "mysql_query_rules_fast_routing", report);
    let mut next_id = 1;
    config.query_rules =
        rules.iter().filter_map(|row| query_rules::query_rule(row, &mut next_id, report)).collect();
    config.fast_routing = fast.iter().filter_map(|row| query_rules::fast_route(row, report)).collect();
    if let Some((table, line)) = table(root, "mysql_variables", report) {
        config.variables = variables::read(Fields::new("mysql_variables", table, line, report));
    }
    if let Some((table, line)) = table(root, "admin_variables", report) {
        let fields = Fields::new("admin_variables", table, line, report);
        fields.finish(|name, item| names::not_built_variable("admin", name, item), names::ADMIN_VARIABLES);
    }
    let mut top = Fields::new("", root, 1, report);
    for name in [
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
        "mysql_variables",
        "admin_variables",
    ] {
        top.item(name);
    }
    match top.optional_text("datadir", 4096) {
        Some(path) if path.is_empty() => top.refuse("datadir", "is empty"),
        Some(path) => config.datadir = PathBuf::from(path),
        None => {}
    }
    top.finish(names::not_built_table, names::TABLES_NOT_BUILT);
    let lines = check::TableLines {
        servers: Lines::of(&servers),
        ssl_params: Lines::of(&ssl_params),
        users: Lines::of(&users),
        clusters: clusters::ClusterLines {
            galera: Lines::of(&galera),
            group_replication: Lines::of(&groups),
            replication: Lines::of(&replication),
        },
        listeners: Lines::of(&listening),
        topology: Lines::of(&topology),
        rules: Lines::of(&rules),
        fast: Lines::of(&fast),
    };
    check::across(&config, &lines, report);
    check::hostgroups(&config, &Lines::of(&attributes), &Lines::of(&own), report);
    config
}

/// A row of an array of tables before it is read.
pub(crate) struct Row<'t> {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) table: &'t dyn TableLike,
}

/// Where the rows of a table stand, for checks that look at several rows.
pub(crate) struct Lines(Vec<(String, usize)>);

impl Lines {
    fn of(rows: &[Row<'_>]) -> Self {
        Self(rows.iter().map(|row| (row.path.clone(), row.line)).collect())
    }

    /// Path and line of a row. Rows that were refused shift the index, so this is only used when none was.
    pub(crate) fn at(&self, index: usize) -> (&str, usize) {
        self.0.get(index).map_or(("", 0), |(path, line)| (path.as_str(), *line))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn rows<'t>(root: &'t Table, name: &'static str, report: &mut Report) -> Vec<Row<'t>> {
    let line = line_of_key(root, name, report).unwrap_or(1);
    let tables: Vec<(Option<Range<usize>>, &dyn TableLike)> = match root.get(name) {
        None => return Vec::new(),
        Some(Item::ArrayOfTables(tables)) => {
            tables.iter().map(|table| (table.span(), table as &dyn TableLike)).collect()
        }
        Some(item) => {
            let list = item.as_array().map(|list| list.iter().map(|value| value.as_inline_table()));
            let Some(tables) = list.and_then(Iterator::collect::<Option<Vec<_>>>) else {
                report.refuse(line, name, format!("is a list of rows: write [[{name}]] above each"));
                return Vec::new();
            };
            tables.into_iter().map(|table| (table.span(), table as &dyn TableLike)).collect()
        }
    };
    if tables.len() > TABLE_ROWS_MAX {
        report.refuse(line, name, format!("{} rows, more than {TABLE_ROWS_MAX}", tables.len()));
        return Vec::new();
    }
    let row = |(index, (span, table)): (usize, (Option<Range<usize>>, &'t dyn TableLike))| Row {
        path: format!("{name}[{index}]"),
        line: span.map_or(line, |span| report.line_of(span.start)),
        table,
    };
    tables.into_iter().enumerate().map(row).collect()
}

fn table<'t>(root: &'t Table, name: &str, report: &mut Report) -> Option<(&'t dyn TableLike, usize)> {
    let item = root.get(name)?;
    let line = line_of_key(root, name, report).unwrap_or(1);
    let table = item.as_table_like();
    if table.is_none() {
        report.refuse(line, name, format!("is a table: write [{name}] above its variables"));
    }
    table.map(|table| (table, line))
}

fn server(row: &Row<'_>, report: &mut Report) -> Option<MysqlServer> {
    let mut f = Fields::new(row.path.as_str(), row.table, row.line, report);
    let hostgroup_id = hostgroup_with_alias(&mut f);
    let hostname = hostname(&mut f);
    let port = port(&mut f);
    let status = match f.optional_text("status", 64).as_deref() {
        None | Some("ONLINE") => ServerStatus::Online,
        Some("OFFLINE_SOFT") => ServerStatus::OfflineSoft,
        Some("OFFLINE_HARD") => ServerStatus::OfflineHard,
        Some(word) => {
            f.refuse("status", unknown_word(word, &["ONLINE", "OFFLINE_SOFT", "OFFLINE_HARD"]));
            ServerStatus::Online
        }
    };
    let weight = f.integer("weight", 1, 0..=10_000_000);
    let max_connections = f.integer("max_connections", 1000, 0..=1_000_000);
    let max_latency_ms = f.integer("max_latency_ms", 0, 0..=INT_MAX);
    let max_replication_lag = f.integer("max_replication_lag", 0, 0..=LAG_S_MAX);
    let use_ssl = f.boolean("use_ssl", false);
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    for name in ["compression", "gtid_port"] {
        f.only(name, 0);
    }
    f.finish(|_, _| None, &[]);
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
    let Some(number) = f.any_integer("port") else { return 3306 };
    match u16::try_from(number) {
        Ok(port) if port > 0 => port,
        _ => {
            f.refuse("port", format!("{number} is not a port (1..65535)"));
            3306
        }
    }
}

fn user(row: &Row<'_>, report: &mut Report) -> Option<MysqlUser> {
    let mut f = Fields::new(row.path.as_str(), row.table, row.line, report);
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
    f.finish(|_, _| None, &[]);
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
