//! Fills `stats_proxysql_servers_...` with what was seen of the other proxies.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_store::{STATS, Store, StoreError, Value};

use crate::peer::Peer;
use crate::version_choice::VersionChoice;

/// Fills the tables.
pub(crate) fn put(store: &mut Store, peers: &[Peer], versions: &VersionChoice) -> Result<(), StoreError> {
    store.put(STATS, "stats_proxysql_servers_checksums", checksums(peers, versions))?;
    store.put(STATS, "stats_proxysql_servers_metrics", peers.iter().map(metrics))
}

fn checksums(peers: &[Peer], versions: &VersionChoice) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for peer in peers {
        for version in peer.versions() {
            let mut row = place(peer);
            row.extend([
                Value::Text(version.module.name().to_owned()),
                number(version.version),
                number(version.epoch),
                Value::Text(version.checksum_text()),
                moment(peer.changed.get(&version.module).copied()),
                moment(peer.updated),
                Value::Integer(versions.differs(version.module).into()),
            ]);
            rows.push(row);
        }
    }
    rows
}

fn metrics(peer: &Peer) -> Vec<Value> {
    let status = &peer.status;
    let mut row = place(peer);
    row.extend([
        Value::Integer(peer.row.weight.into()),
        Value::Text(peer.row.comment.clone()),
        millis(status.response_time),
        Value::Integer(status.uptime_s),
        millis(peer.last_look.map(|at| at.elapsed()).unwrap_or_default()),
        Value::Integer(status.queries),
        Value::Integer(status.clients_connected),
        Value::Integer(status.clients_created),
    ]);
    row
}

fn place(peer: &Peer) -> Vec<Value> {
    let endpoint = peer.endpoint();
    vec![Value::Text(endpoint.host.to_string()), Value::Integer(endpoint.port.into())]
}

fn number(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn millis(duration: Duration) -> Value {
    Value::Integer(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// Seconds since 1970; 0 for never.
fn moment(at: Option<SystemTime>) -> Value {
    number(at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs()))
}
