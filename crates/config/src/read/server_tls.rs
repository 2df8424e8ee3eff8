//! Reads the rows of TLS towards servers.

use weir_topology::Endpoint;

use crate::field::fields::{Fields, Row};
use crate::model::server_tls::{COLUMNS, ServerSslParams, params};
use crate::read::servers;
use crate::report::error::Report;
use crate::value::limits::COMMENT_CHARS_MAX;

/// Whether a row is for all users; others are left out.
pub(crate) fn is_for_all_users(row: &Row<'_>, report: &mut Report) -> bool {
    let mut f = Fields::of(row, report);
    let is_for_all = f.optional_text("username", 4096).is_none_or(|name| name.is_empty());
    if !is_for_all {
        let reason = "not built yet (only an empty string): connections go from one user to another";
        f.tolerate("username", reason);
    }
    is_for_all
}

/// A row of `mysql_servers_ssl_params`.
pub(crate) fn ssl_params(row: &Row<'_>, report: &mut Report) -> Option<ServerSslParams> {
    let mut f = Fields::of(row, report);
    let hostname = servers::hostname(&mut f);
    let port = servers::port(&mut f);
    let params = params(&mut f, &COLUMNS);
    f.item("username");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(ServerSslParams { endpoint: Endpoint::new(&hostname?, port), params, comment })
}
