//! Reads the rows of servers.

use crate::field::fields::{Fields, Row};
use crate::model::servers::{MysqlServer, ServerStatus};
use crate::report::error::Report;
use crate::table::column::INT_MAX;
use crate::value::limits::{COMMENT_CHARS_MAX, HOSTNAME_CHARS_MAX};
use crate::value::suggest::unknown_word;

pub(crate) fn server(row: &Row<'_>, report: &mut Report) -> Option<MysqlServer> {
    let mut f = Fields::of(row, report);
    let hostgroup_id = hostgroup_with_alias(&mut f);
    let hostname = hostname(&mut f);
    let port = port(&mut f);
    let status = status(&mut f);
    let weight = f.number("weight");
    let max_connections = f.number("max_connections");
    let max_latency_ms = f.number("max_latency_ms");
    let max_replication_lag = f.number("max_replication_lag");
    let use_ssl = f.flag("use_ssl");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.only_default("compression");
    let gtid_port: u16 = f.number("gtid_port");
    if gtid_port != 0 && gtid_port == port {
        f.refuse("gtid_port", format!("{gtid_port} is the server's own port"));
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
        gtid_port,
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
            f.tolerate("status", "SHUNNED is a state that Weir observes, not a setting: treated as ONLINE");
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
    let number = f.any_integer("port");
    match number.and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0) {
        Some(port) => port,
        None => {
            if let Some(number) = number {
                f.refuse("port", format!("{number} is not a port (1..65535)"));
            }
            f.default("port")
        }
    }
}
