//! Reads the rows of what is said of hostgroups.

use crate::field::fields::{Fields, Row};
use crate::model::hostgroups::{Balancing, HostgroupAttributes, WeirHostgroup, init_connect};
use crate::read::servers::required_hostgroup;
use crate::report::error::Report;
use crate::value::limits::COMMENT_CHARS_MAX;
use crate::value::suggest::unknown_word;

pub(crate) fn attributes(row: &Row<'_>, report: &mut Report) -> Option<HostgroupAttributes> {
    let mut f = Fields::of(row, report);
    let hostgroup_id = required_hostgroup(&mut f, "hostgroup_id");
    let max_num_online_servers = f.number("max_num_online_servers");
    let free_connections_pct = f.number("free_connections_pct");
    let init_connect = init_connect(&mut f, "init_connect").unwrap_or_default();
    let multiplex = f.flag("multiplex");
    let connection_warming = f.flag("connection_warming");
    let throttle_connections_per_sec = f.number("throttle_connections_per_sec");
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.only_default("autocommit");
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
