//! Fills the tables of `monitor`: results of probes.

use weir_monitor::{GaleraSeen, GroupSeen, ProbeLog, Probed};
use weir_store::Value;

use super::{Rows, integer, text};

/// The rows of a table of `monitor`, oldest first.
pub(super) fn rows(table: &str, log: &ProbeLog) -> Option<Rows> {
    let rows = match table {
        "mysql_server_connect_log" => table_of(&log.connects(), |()| Vec::new(), Vec::new),
        "mysql_server_ping_log" => table_of(&log.pings(), |()| Vec::new(), Vec::new),
        "mysql_server_read_only_log" => table_of(
            &log.read_only(),
            |is_read_only| vec![integer(u32::from(*is_read_only))],
            || vec![Value::Null],
        ),
        "mysql_server_replication_lag_log" => {
            table_of(&log.lags(), |lag| vec![lag.map_or(Value::Null, integer)], || vec![Value::Null])
        }
        "mysql_server_group_replication_log" => table_of(&log.groups(), group, no_group),
        "mysql_server_galera_log" => table_of(&log.galera(), galera, no_galera),
        _ => return None,
    };
    Some(rows)
}

/// `seen` and `unseen` tell the columns between the time that it took and the error.
fn table_of<T>(log: &[Probed<T>], seen: impl Fn(&T) -> Vec<Value>, unseen: impl Fn() -> Vec<Value>) -> Rows {
    let row = |probed: &Probed<T>| {
        let mut row = vec![
            text(&*probed.endpoint.host),
            integer(probed.endpoint.port),
            integer(probed.started_us),
            integer(probed.took_us),
        ];
        row.extend(probed.seen.as_ref().map_or_else(&unseen, &seen));
        row.push(probed.error.as_ref().map_or(Value::Null, text));
        row
    };
    log.iter().map(row).collect()
}

fn yes_or_no(is: bool) -> Value {
    text(if is { "YES" } else { "NO" })
}

fn group(seen: &GroupSeen) -> Vec<Value> {
    vec![yes_or_no(seen.is_viable), yes_or_no(seen.read_only), integer(seen.transactions_behind)]
}

/// As far as anybody knows it can do nothing.
fn no_group() -> Vec<Value> {
    vec![yes_or_no(false), yes_or_no(true), integer(0)]
}

fn galera(seen: &GaleraSeen) -> Vec<Value> {
    vec![
        yes_or_no(seen.is_primary),
        yes_or_no(seen.read_only),
        integer(seen.local_recv_queue),
        integer(seen.local_state),
        yes_or_no(seen.desync),
        yes_or_no(seen.reject_queries),
        yes_or_no(seen.sst_donor_rejects_queries),
        text(seen.maintenance),
    ]
}

fn no_galera() -> Vec<Value> {
    vec![
        yes_or_no(false),
        yes_or_no(true),
        integer(0),
        integer(0),
        yes_or_no(false),
        yes_or_no(false),
        yes_or_no(false),
        text("DISABLED"),
    ]
}

#[cfg(test)]
mod tests {
    use weir_topology::Endpoint;

    use super::*;

    #[test]
    fn rows_have_as_many_columns_as_their_table() {
        let log = ProbeLog::default();
        let names = ["connect", "ping", "read_only", "replication_lag", "group_replication", "galera"];
        for name in names {
            assert_eq!(rows(&format!("mysql_server_{name}_log"), &log), Some(Vec::new()), "{name}");
        }
        assert_eq!(rows("mysql_server_other_log", &log), None);
        let probed = |seen| Probed {
            endpoint: Endpoint::new("db1", 3306),
            started_us: 5,
            took_us: 7,
            seen,
            error: None,
        };
        let seen = GroupSeen { is_viable: true, read_only: false, transactions_behind: 3 };
        let shown = table_of(
            &[probed(Some(seen)), Probed { error: Some("gone".to_owned()), ..probed(None) }],
            group,
            no_group,
        );
        assert_eq!(shown[0][2..], [integer(5), integer(7), text("YES"), text("NO"), integer(3), Value::Null]);
        assert_eq!(shown[1][4..], [text("NO"), text("YES"), integer(0), text("gone")]);
        let declared = weir_store::table(weir_store::MONITOR, "mysql_server_group_replication_log");
        assert_eq!(declared.map(|table| table.columns.len()), Some(shown[0].len()));
        let declared = weir_store::table(weir_store::MONITOR, "mysql_server_galera_log");
        assert_eq!(declared.map(|table| table.columns.len()), Some(4 + no_galera().len() + 1));
    }
}
