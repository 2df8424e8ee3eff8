//! Measures rows with sysbench.

use std::fs;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use weir_lab::Error;
use weir_lab::measure::{Metric, Sample};
use weir_testkit::{Sysbench, SysbenchReport};

use crate::bench::{Bench, empty_case, progress};
use crate::peer::{Kind, Peer};
use crate::report::Case;
use crate::row::{Load, Row, Workload};

/// Our script for sysbench, part of this program so that it is there wherever the program is.
const RECONNECT_LUA: &str = include_str!("../scripts/reconnect.lua");
const KINDS: [Kind; 7] = [
    Kind::Direct,
    Kind::HaProxy,
    Kind::ProxySql,
    Kind::Weir,
    Kind::WeirEpoll,
    Kind::WeirNoReplay,
    Kind::WeirMarker,
];

pub(super) fn measure(bench: &Bench<'_>, row: Row, load: Load) -> Result<Vec<Case>, Error> {
    let threads = bench.args.threads(row);
    let most = threads.iter().copied().max().unwrap_or(1);
    let kinds: Vec<Kind> = KINDS.into_iter().chain(row.has_relay().then_some(Kind::Relay)).collect();
    let peers = bench.peers(bench.args.layout(load.layout), most, &kinds)?;
    let workload = workload(bench, load.workload)?;
    let sysbench = |server: SocketAddrV4, threads: u32, time_s: u32| Sysbench {
        tables: bench.scale.tables,
        table_rows: bench.scale.table_rows,
        threads,
        time_s,
        extra: load.extra.iter().map(|&argument| argument.to_owned()).collect(),
        working_dir: load.tls.then(|| bench.certificates.dir().to_owned()),
        ..Sysbench::new(&workload, server)
    };
    let case = |&threads: &u32| empty_case(row, &format!("{threads} threads"), row.goals(threads), &peers);
    let mut cases: Vec<Case> = threads.iter().map(case).collect();
    if bench.scale.warm_up_s > 0 {
        progress(&format!("{row}: warming up"));
        for peer in &peers {
            visit(bench, peer, &sysbench(peer.addr, most, bench.scale.warm_up_s))?;
        }
    }
    for round in 0..bench.scale.rounds {
        for (case, &threads) in cases.iter_mut().zip(threads) {
            bench.rounds(case, &peers, round, |peer| {
                let load = sysbench(peer.addr, threads, bench.scale.seconds);
                if row == Row::Reconnect {
                    let (count, sample) = bench.counting_connections(|| visit(bench, peer, &load))?;
                    return Ok(sample.with(Metric::ServerConnections, count as f64));
                }
                visit(bench, peer, &load)
            })?;
        }
    }
    Ok(cases)
}

/// One visit of point selects.
pub(super) fn point_select(bench: &Bench<'_>, peer: &Peer, threads: u32) -> Result<Sample, Error> {
    let load = Sysbench {
        tables: bench.scale.tables,
        table_rows: bench.scale.table_rows,
        threads,
        time_s: bench.scale.seconds,
        ..Sysbench::new("oltp_point_select", peer.addr)
    };
    visit(bench, peer, &load)
}

/// The name of sysbench's workload, or the path of a script of ours.
fn workload(bench: &Bench<'_>, workload: Workload) -> Result<String, Error> {
    match workload {
        Workload::Own(name) => Ok(name.to_owned()),
        Workload::Reconnect => {
            let path: PathBuf = bench.cluster.dir().join("reconnect.lua");
            let doing = Error::io(format!("write {}", path.display()));
            fs::write(&path, RECONNECT_LUA).map_err(doing)?;
            Ok(path.display().to_string())
        }
    }
}

fn visit(bench: &Bench<'_>, peer: &Peer, load: &Sysbench) -> Result<Sample, Error> {
    let before = (peer.cpu_time()?, bench.servers_cpu_time()?);
    let report = run(bench, load)?;
    let after = (peer.cpu_time()?, bench.servers_cpu_time()?);
    let cpu = before.0.zip(after.0).map(|(before, after)| after.saturating_sub(before));
    let servers = after.1.saturating_sub(before.1);
    sample(&report, cpu, servers)
        .ok_or_else(|| Error::NoStatements(format!("{} via {}", load.workload, peer.kind)))
}

/// Runs sysbench to its end, or only until somebody presses Ctrl-C.
fn run(bench: &Bench<'_>, load: &Sysbench) -> Result<SysbenchReport, Error> {
    // Dropped, and so killed, if we leave early.
    let running = load.start(bench.cluster.dir(), "sysbench")?;
    bench.stop.sleep(Duration::from_secs(u64::from(load.time_s)))?;
    Ok(running.wait()?)
}

/// `None` if there was no statement to divide by. Logging in is in the CPU time, for all proxies alike; the kernel
/// counts it in ticks of 10 ms.
fn sample(report: &SysbenchReport, cpu: Option<Duration>, servers: Duration) -> Option<Sample> {
    let per_statement = |time: Duration| time.as_secs_f64() * 1e6 / report.statements as f64;
    (report.statements > 0 && report.time_s > 0.0).then(|| {
        Sample::default()
            .with(Metric::StatementsPerS, report.statements_per_s())
            .with_some(Metric::CpuUsPerStatement, cpu.map(per_statement))
            .with(Metric::AllCpuUsPerStatement, per_statement(cpu.unwrap_or_default() + servers))
            .with(Metric::P99Ms, report.latency_p99_ms)
            .with_some(Metric::Repeated, (report.ignored_errors > 0).then_some(report.ignored_errors as f64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statements: u64) -> SysbenchReport {
        SysbenchReport {
            statements,
            transactions: statements,
            ignored_errors: 1,
            reconnects: 0,
            time_s: 2.0,
            latency_avg_ms: 0.5,
            latency_p99_ms: 1.5,
            latency_max_ms: 9.0,
        }
    }

    #[test]
    fn cpu_time_is_shared_out_among_the_statements() {
        let servers = Duration::from_millis(250);
        let through = sample(&report(10_000), Some(Duration::from_millis(150)), servers).unwrap();
        assert_eq!(through.value(Metric::CpuUsPerStatement), Some(15.0));
        assert_eq!(through.value(Metric::AllCpuUsPerStatement), Some(40.0));
        assert_eq!(through.value(Metric::StatementsPerS), Some(5_000.0));
        assert_eq!(through.value(Metric::Repeated), Some(1.0));
        let direct = sample(&report(10_000), None, servers).unwrap();
        assert_eq!(direct.value(Metric::CpuUsPerStatement), None);
        assert_eq!(direct.value(Metric::AllCpuUsPerStatement), Some(25.0));
        assert_eq!(sample(&report(0), None, servers), None);
    }
}
