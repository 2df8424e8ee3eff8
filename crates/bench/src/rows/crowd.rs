//! Measures many clients over few server connections: a tenth of them has a statement on its way at any moment, and all of
//! them come round.

use std::time::Duration;

use weir_lab::measure::{Metric, Sample};
use weir_lab::{Error, crowd};

use crate::bench::{Bench, empty_case, login, progress};
use crate::peer::{Kind, Peer};
use crate::report::Case;
use crate::row::{Layout, Row};
use crate::rows::idle;

/// HAProxy would need a server connection for each client.
const KINDS: [Kind; 3] = [Kind::ProxySql, Kind::Weir, Kind::WeirEpoll];
/// `max_connections` of the server.
const SERVER_CONNECTIONS: u32 = 50;
/// Clients of which one is active.
const ACTIVE_ONE_OF: usize = 10;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Case>, Error> {
    let clients = bench.scale.clients;
    let peers = bench.peers(Layout::Narrow(SERVER_CONNECTIONS), clients, &KINDS)?;
    let name = format!("{clients} clients, {SERVER_CONNECTIONS} connections");
    let mut case = empty_case(Row::Crowd, &name, Row::Crowd.goals(clients), &peers);
    bench.rounds(&mut case, &peers, 0, |peer| visit(bench, peer))?;
    Ok(vec![case])
}

fn visit(bench: &Bench<'_>, peer: &Peer) -> Result<Sample, Error> {
    let (connections, sample) = bench.counting_connections(|| run(bench, peer))?;
    Ok(sample.with(Metric::ServerConnections, connections as f64))
}

fn run(bench: &Bench<'_>, peer: &Peer) -> Result<Sample, Error> {
    let scale = bench.scale;
    let clients = idle::log_in(bench, &login(peer.addr), scale.clients)?;
    let active = (scale.clients as usize / ACTIVE_ONE_OF).max(1);
    progress(&format!("crowd: {active} of {} clients are active at {}", scale.clients, peer.addr));
    let cpu_before = peer.cpu_time()?;
    let time = Duration::from_secs(u64::from(scale.idle_seconds));
    let seen = crowd::run(clients, active, time, &bench.stop, |statement| {
        let (table, id) = point(statement, scale.tables, scale.table_rows);
        format!("SELECT c FROM sbtest{table} WHERE id={id}")
    })?;
    let cpu = peer.cpu_time()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    if let Some(error) = &seen.first_error {
        progress(&format!("crowd: the first of {} errors via {}: {error}", seen.errors, peer.kind));
    }
    let statements = seen.latencies.count() as f64;
    let per_statement = |time: Duration| time.as_secs_f64() * 1e6 / statements.max(1.0);
    Ok(Sample::default()
        .with(Metric::StatementsPerS, statements / seen.took.as_secs_f64())
        .with_some(Metric::CpuUsPerStatement, cpu.map(per_statement))
        .with_some(Metric::P50Ms, seen.latencies.percentile_ms(50.0))
        .with_some(Metric::P99Ms, seen.latencies.percentile_ms(99.0))
        .with(Metric::Errors, seen.errors as f64))
}

/// Table and row of a statement: all over the tables, the same in every run.
fn point(statement: u64, tables: u32, table_rows: u32) -> (u64, u64) {
    // The fractional part of n times the golden ratio is spread evenly.
    let spread = statement.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (statement % u64::from(tables.max(1)) + 1, spread % u64::from(table_rows.max(1)) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_spread_over_all_rows_that_exist() {
        let points: Vec<(u64, u64)> = (0..10_000).map(|n| point(n, 4, 100)).collect();
        assert!(points.iter().all(|&(table, id)| (1..=4).contains(&table) && (1..=100).contains(&id)));
        for id in 1..=100 {
            let hits = points.iter().filter(|point| point.1 == id).count();
            assert!((50..200).contains(&hits), "row {id}: {hits} times");
        }
    }
}
