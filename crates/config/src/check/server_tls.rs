//! Checks that each server has one way to be connected to.

use std::collections::HashMap;

use weir_topology::Endpoint;

use crate::model::config::Config;
use crate::model::server_tls::NEEDS_AUTHORITY;
use crate::report::error::Report;
use crate::report::place::Lines;

/// A server has one way to be connected to, whichever hostgroup wants it, and rows are of servers that are there.
pub(crate) fn consistent(
    config: &Config,
    servers: Option<&Lines<'_>>,
    params: Option<&Lines<'_>>,
    report: &mut Report,
) {
    let mut seen: HashMap<Endpoint, (bool, usize)> = HashMap::new();
    for (index, row) in config.servers.iter().enumerate() {
        let (use_ssl, first) = *seen.entry(row.endpoint()).or_insert((row.use_ssl, index));
        if let Some(lines) = servers.filter(|_| use_ssl != row.use_ssl) {
            let reason = format!(
                "differs from the row of {} in {}: all rows of a server must agree",
                row.endpoint(),
                lines.at(first).pointer()
            );
            report.refuse(lines.at(index), "use_ssl", reason);
        }
        if let Some(lines) = servers.filter(|_| row.use_ssl && first == index) {
            let params = config.server_tls(&row.endpoint());
            if params.is_some_and(|params| params.verifies_identity && !params.has_authority()) {
                report.refuse(lines.at(index), "use_ssl", NEEDS_AUTHORITY.to_owned());
            }
        }
    }
    let Some(lines) = params else { return };
    let mut rows: HashMap<&Endpoint, usize> = HashMap::new();
    for (index, row) in config.servers_ssl_params.iter().enumerate() {
        let first = *rows.entry(&row.endpoint).or_insert(index);
        if first != index {
            let reason = format!("{} is already there ({})", row.endpoint, lines.at(first).pointer());
            report.refuse(lines.at(index), "", reason);
        } else if servers.is_some() && !seen.contains_key(&row.endpoint) {
            let reason = format!("no row of mysql_servers is {}", row.endpoint);
            report.tolerate(lines.at(index), "", reason);
        }
    }
}
