//! Reads the rows of what is said of hostgroups.

use crate::field::fields::{Fields, Row};
use weir_routing::{CommitOutcome, Consistency, ReplayMode};

use crate::model::hostgroups::{
    Balancing, HostgroupAttributes, ReadPreference, SendProxyProtocol, WeirHostgroup, init_connect,
};
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
    let mut f = Fields::of(row, report);
    let hostgroup_id = required_hostgroup(&mut f, "hostgroup_id");
    let balancing = word(
        &mut f,
        "balancing",
        &[
            ("weighted", Balancing::Weighted),
            ("least_in_flight", Balancing::LeastInFlight),
            ("latency", Balancing::Latency),
        ],
    );
    let consistency = word(&mut f, "consistency", &Consistency::ALL.map(|level| (level.as_str(), level)));
    let reads =
        word(&mut f, "reads", &[("spread", ReadPreference::Spread), ("fastest", ReadPreference::Fastest)]);
    let consistency_timeout_ms = f.number("consistency_timeout_ms");
    let deadlock_retries = f.number("deadlock_retries");
    let transaction_replay =
        word(&mut f, "transaction_replay", &ReplayMode::ALL.map(|mode| (mode.as_str(), mode)));
    let transaction_replay_max_bytes = f.number("transaction_replay_max_bytes");
    let follow_accounts = f.flag("follow_accounts");
    let commit_outcome =
        word(&mut f, "commit_outcome", &CommitOutcome::ALL.map(|outcome| (outcome.as_str(), outcome)));
    let send_proxy_protocol = word(
        &mut f,
        "send_proxy_protocol",
        &[("off", SendProxyProtocol::Off), ("v1", SendProxyProtocol::V1), ("v2", SendProxyProtocol::V2)],
    );
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    Some(WeirHostgroup {
        hostgroup_id: hostgroup_id?,
        balancing,
        consistency,
        reads,
        consistency_timeout_ms,
        deadlock_retries,
        transaction_replay,
        transaction_replay_max_bytes,
        follow_accounts,
        commit_outcome,
        send_proxy_protocol,
        comment,
    })
}

/// One of these words; the default if there is none, or a fault.
fn word<T: Copy + Default>(f: &mut Fields<'_, '_>, name: &'static str, words: &[(&'static str, T)]) -> T {
    let fault = match f.item(name).map(|item| (item, item.as_str())) {
        None => return T::default(),
        Some((_, Some(word))) => match words.iter().find(|(known, _)| *known == word) {
            Some((_, value)) => return *value,
            None => unknown_word(word, &words.iter().map(|(known, _)| *known).collect::<Vec<_>>()),
        },
        Some((item, None)) => format!("{} is not a string", item.describe()),
    };
    f.refuse(name, fault);
    T::default()
}
