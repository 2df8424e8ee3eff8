//! `mysql_hostgroup_attributes` and `weir_hostgroups`: what holds for all servers of a hostgroup.

use crate::error::Report;
use crate::fields::Fields;
use crate::statements;
use crate::suggest::unknown_word;
use crate::tables::{COMMENT_CHARS_MAX, Row, required_hostgroup};

/// The limits of ProxySQL's columns.
const SERVERS_MAX: u32 = 1_000_000;
pub(crate) const THROTTLE_MAX: u32 = 1_000_000;
/// `init_connect`, in characters and in statements.
const INIT_CONNECT_CHARS_MAX: usize = 4096;
const INIT_CONNECT_STATEMENTS_MAX: usize = 16;

/// A row of `mysql_hostgroup_attributes`. Key: hostgroup_id. As in ProxySQL a row with its defaults comes before the
/// variables of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostgroupAttributes {
    /// Required.
    pub hostgroup_id: u32,
    /// With more servers online the hostgroup serves nobody, default 1000000.
    pub max_num_online_servers: u32,
    /// Idle connections kept, in percent of a server's `max_connections`, default 10.
    pub free_connections_pct: u32,
    /// Statements for each new connection, one by one; empty (default): those of `MysqlVariables::init_connect`.
    pub init_connect: Vec<String>,
    /// Whether sessions share its connections, default true; else each keeps the one that it has got.
    pub multiplex: bool,
    /// Whether so many connections are opened in advance, default false.
    pub connection_warming: bool,
    /// Connections opened for the hostgroup in a second, default 1000000.
    pub throttle_connections_per_sec: u32,
    /// For humans.
    pub comment: String,
}

/// A row of `weir_hostgroups`, which ProxySQL does not have. Key: hostgroup_id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeirHostgroup {
    /// Required.
    pub hostgroup_id: u32,
    /// How statements are shared between its servers.
    pub balancing: Balancing,
    /// For humans.
    pub comment: String,
}

/// How the statements of a hostgroup are shared between its servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balancing {
    /// By weight, one after the other.
    #[default]
    Weighted,
    /// Where the fewest statements are under way, per weight.
    LeastInFlight,
    /// By weight, less to those that take longer.
    Latency,
}

pub(crate) fn attributes(row: &Row<'_>, report: &mut Report) -> Option<HostgroupAttributes> {
    let mut f = Fields::of(row, report);
    let hostgroup_id = required_hostgroup(&mut f, "hostgroup_id");
    let max_num_online_servers = f.integer("max_num_online_servers", SERVERS_MAX, 0..=SERVERS_MAX);
    let free_connections_pct = f.integer("free_connections_pct", 10, 0..=100);
    let init_connect = init_connect(&mut f);
    let multiplex = f.boolean("multiplex", true);
    let connection_warming = f.boolean("connection_warming", false);
    let throttle_connections_per_sec =
        f.integer("throttle_connections_per_sec", THROTTLE_MAX, 1..=THROTTLE_MAX);
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.only("autocommit", -1);
    for name in ["ignore_session_variables", "hostgroup_settings", "servers_defaults"] {
        if f.item(name).is_some_and(|item| item.as_str() != Some("")) {
            f.tolerate(name, "not built yet (only an empty string)");
        }
    }
    f.finish_row();
    Some(HostgroupAttributes {
        hostgroup_id: hostgroup_id?,
        max_num_online_servers,
        free_connections_pct,
        init_connect,
        multiplex,
        connection_warming,
        throttle_connections_per_sec,
        comment,
    })
}

pub(crate) fn weir_hostgroup(row: &Row<'_>, report: &mut Report) -> Option<WeirHostgroup> {
    const WORDS: [&str; 3] = ["weighted", "least_in_flight", "latency"];
    let mut f = Fields::of(row, report);
    let hostgroup_id = required_hostgroup(&mut f, "hostgroup_id");
    let balancing = match f.item("balancing").map(|item| (item, item.as_str())) {
        None | Some((_, Some("weighted"))) => Balancing::Weighted,
        Some((_, Some("least_in_flight"))) => Balancing::LeastInFlight,
        Some((_, Some("latency"))) => Balancing::Latency,
        Some((item, word)) => {
            let fault = match word {
                Some(word) => unknown_word(word, &WORDS),
                None => format!("{} is not a string", item.describe()),
            };
            f.refuse("balancing", fault);
            Balancing::Weighted
        }
    };
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(WeirHostgroup { hostgroup_id: hostgroup_id?, balancing, comment })
}

/// `init_connect`, of a hostgroup or for all.
pub(crate) fn init_connect(f: &mut Fields<'_, '_>) -> Vec<String> {
    let Some(text) = f.optional_text("init_connect", INIT_CONNECT_CHARS_MAX) else { return Vec::new() };
    let fault = match statements::split(&text) {
        Ok(statements) if statements.len() > INIT_CONNECT_STATEMENTS_MAX => {
            format!("more than {INIT_CONNECT_STATEMENTS_MAX} statements")
        }
        Ok(statements) => return statements,
        Err(fault) => fault.to_string(),
    };
    f.refuse("init_connect", fault);
    Vec::new()
}
