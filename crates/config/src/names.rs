//! All names that ProxySQL 2.7 knows, and whether they have an effect in Weir. Names and defaults are ProxySQL's
//! interface (its manual, "Global variables" and "Main (runtime)").

use std::sync::LazyLock;

use crate::fields::{Leftover, quotable};
use crate::scalar::Scalar;
use crate::suggest;
use crate::variable_names::VARIABLES;

/// Tables, top-level keys and whole modules of ProxySQL's configuration that Weir has not built.
pub(crate) const TABLES_NOT_BUILT: &[&str] = &[
    "mysql_aws_aurora_hostgroups",
    "mysql_collations",
    "mysql_firewall_whitelist_users",
    "mysql_firewall_whitelist_rules",
    "mysql_firewall_whitelist_sqli_fingerprints",
    "mysql_ldap_mapping",
    "restapi",
    "restapi_routes",
    "coredump_filters",
    "clickhouse_users",
    "clickhouse_variables",
    "sqliteserver_variables",
    "ldap_variables",
    "pgsql_servers",
    "pgsql_users",
    "pgsql_query_rules",
    "pgsql_variables",
    "pgsql_replication_hostgroups",
    "errorlog",
    "cluster_sync_interfaces",
    "execute_on_exit_failure",
    "ldap_auth_plugin",
    "restart_on_missing_heartbeats",
    "web_interface_plugin",
    "uuid",
];

/// `mysql-` variables.
pub(crate) const MYSQL: &str = "mysql";
/// `admin-` variables.
pub(crate) const ADMIN: &str = "admin";

const NOT_BUILT: &str = "not built yet";
/// Who relies on a filter must not overlook that there is none.
const NOT_FILTERED: &str = "not built yet: NO STATEMENT IS FILTERED";

/// Why a table or variable has no effect.
pub(crate) fn why_without_effect(name: &str) -> &'static str {
    let filters = ["firewall_whitelist_enabled", "automatic_detect_sqli"];
    if filters.contains(&name) || name.starts_with("mysql_firewall_") { NOT_FILTERED } else { NOT_BUILT }
}

/// What becomes of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It counts.
    Built,
    /// The default means "off", and other values have no effect.
    OnlyOff,
    /// No value has an effect.
    None,
}

/// A variable of `global_variables`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// `mysql` or `admin`.
    pub module: &'static str,
    /// Its name without the module, such as `threads`.
    pub name: &'static str,
    pub(crate) default: &'static str,
    /// What becomes of its value.
    pub effect: Effect,
}

impl Variable {
    /// The name in `global_variables`, such as `mysql-threads`.
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.module, self.name)
    }

    /// Whether it is of one machine, so that a cluster of proxies leaves it alone: addresses and files, threads, and
    /// what runs.
    pub fn is_local(&self) -> bool {
        const OF_MYSQL: [&str; 6] =
            ["interfaces", "threads", "tls_cert_file", "tls_key_file", "io_driver", "worker_scheduling"];
        const OF_ADMIN: [&str; 11] = [
            "mysql_ifaces",
            "cluster_ssl_ca",
            "pgsql_ifaces",
            "telnet_admin_ifaces",
            "telnet_stats_ifaces",
            "web_enabled",
            "web_port",
            "restapi_enabled",
            "restapi_port",
            "ssl_keylog_file",
            "version",
        ];
        match self.module {
            MYSQL => OF_MYSQL.contains(&self.name),
            _ => OF_ADMIN.contains(&self.name),
        }
    }

    /// The value that holds where none is given, as text.
    pub fn default_value(&self) -> &'static str {
        static THREADS: LazyLock<String> =
            LazyLock::new(|| crate::MysqlVariables::default().threads.to_string());
        match (self.module, self.name) {
            (MYSQL, "threads") => &THREADS,
            (ADMIN, "version") => env!("CARGO_PKG_VERSION"),
            _ => self.default,
        }
    }
}

/// All variables: ProxySQL's, with effect or without, and Weir's own.
pub fn variables() -> &'static [Variable] {
    VARIABLES
}

/// The variable of this whole name, such as `mysql-threads`.
pub fn variable(full_name: &str) -> Option<&'static Variable> {
    let (module, name) = full_name.split_once('-')?;
    VARIABLES.iter().find(|known| known.module == module && known.name == name)
}

/// Whether the value of a variable or column of this name is a secret: neither shown nor logged.
pub fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["password", "credentials", "token"].iter().any(|word| lower.contains(word))
}

/// The whole name that is most like an unknown one.
pub fn nearest_variable(full_name: &str) -> Option<&'static str> {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| VARIABLES.iter().map(Variable::full_name).collect());
    suggest::nearest(full_name, NAMES.iter().map(String::as_str))
}

/// The names of a module's variables that are not built.
pub(crate) fn not_built(module: &'static str) -> impl Iterator<Item = &'static str> {
    let of_module = VARIABLES.iter().filter(move |known| known.module == module);
    of_module.filter(|known| known.effect != Effect::Built).map(|known| known.name)
}

/// What becomes of a variable that nobody reads. In a file only a value that says "off" passes; in a database all
/// variables have rows, so those with their defaults say nothing.
pub(crate) fn leftover(module: &str, name: &str, value: Scalar<'_>, is_strict: bool) -> Leftover {
    let Some(known) = VARIABLES.iter().find(|known| known.module == module && known.name == name) else {
        let bare = name.strip_prefix(module).and_then(|rest| rest.strip_prefix(['-', '_']));
        return match bare.filter(|bare| is_strict && !bare.is_empty()) {
            Some(bare) => {
                Leftover::NotBuilt(format!("names have no {module}- prefix here: write {}", quotable(bare)))
            }
            None => Leftover::Unknown,
        };
    };
    let is_off = known.effect == Effect::OnlyOff && value.is_off();
    let is_default = !is_strict
        && match value {
            Scalar::Text(text, _) => text.eq_ignore_ascii_case(known.default_value()),
            Scalar::Integer(number) => number.to_string() == known.default_value(),
            _ => false,
        };
    match is_off || is_default {
        true => Leftover::Nothing,
        false => Leftover::NotBuilt(why_without_effect(name).to_owned()),
    }
}

/// What becomes of a top-level key that nobody reads.
pub(crate) fn leftover_table(name: &str, value: Scalar<'_>, is_empty: bool) -> Leftover {
    match TABLES_NOT_BUILT.contains(&name) {
        false => Leftover::Unknown,
        true if is_empty || value.is_off() => Leftover::Nothing,
        true => Leftover::NotBuilt(why_without_effect(name).to_owned()),
    }
}
