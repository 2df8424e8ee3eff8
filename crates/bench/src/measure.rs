//! The measuring itself.
//!
//! Of every visit three figures are kept:
//! - **statements/s**: sysbench's own count (`queries`) over its own time,
//! - **CPU per statement**: user and system time of the proxy's process, all threads, between the start and the end of
//!   sysbench, over sysbench's statements. Logging in is in it, for both proxies alike. The kernel counts in ticks of
//!   10 ms.
//! - **p99**: of sysbench's events: a statement in oltp_point_select, a whole transaction in the others.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_testkit::{Sysbench, SysbenchReport};

use crate::args::Args;
use crate::error::BenchError;
use crate::peer::{Kind, Peer};

/// How quickly a Ctrl-C is noticed.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A run before the first round, so that no peer pays for cold caches, seconds.
const WARM_UP_S: u32 = 1;

/// One workload with one number of threads: every peer's visits.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Case {
    /// sysbench's name for it.
    pub(crate) workload: String,
    /// Connections.
    pub(crate) threads: u32,
    /// In the order of the command line.
    pub(crate) peers: Vec<PeerSamples>,
}

/// What one peer did in a case.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PeerSamples {
    /// Which peer.
    pub(crate) peer: Kind,
    /// One entry per round, in order.
    pub(crate) rounds: Vec<Sample>,
}

/// One visit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Statements that were answered.
    pub(crate) statements: u64,
    /// Statements per second.
    pub(crate) statements_per_s: f64,
    /// The proxy's CPU time per statement, µs; `None` without a proxy.
    pub(crate) cpu_us_per_statement: Option<f64>,
    /// 99th percentile of an event's latency, ms.
    pub(crate) p99_ms: f64,
    /// Deadlocks and the like, each of which repeats a transaction.
    pub(crate) errors_ignored: u64,
}

/// Visits every peer in every round for every workload and number of threads.
pub(crate) fn measure(
    args: &Args,
    peers: &[Peer],
    dir: &Path,
    cancel: &AtomicBool,
    progress: fn(&str),
) -> Result<Vec<Case>, BenchError> {
    let mut cases = empty_cases(args, peers);
    warm_up(args, peers, dir, cancel)?;
    for round in 0..args.rounds as usize {
        for case in &mut cases {
            for i in visiting_order(peers.len(), round) {
                let (Some(peer), Some(samples)) = (peers.get(i), case.peers.get_mut(i)) else { continue };
                let load = load(args, &case.workload, case.threads, peer.addr);
                let sample = visit(peer, &load, dir, cancel)?;
                progress(&progress_line(args, round, &load, peer.kind, &sample));
                samples.rounds.push(sample);
            }
        }
    }
    Ok(cases)
}

fn empty_cases(args: &Args, peers: &[Peer]) -> Vec<Case> {
    let samples = |peer: &Peer| PeerSamples { peer: peer.kind, rounds: Vec::new() };
    let case = |workload: &String, threads: u32| Case {
        workload: workload.clone(),
        threads,
        peers: peers.iter().map(samples).collect(),
    };
    args.workloads.iter().flat_map(|w| args.threads.iter().map(move |&t| case(w, t))).collect()
}

fn warm_up(args: &Args, peers: &[Peer], dir: &Path, cancel: &AtomicBool) -> Result<(), BenchError> {
    let threads = args.threads.first().copied().unwrap_or(1);
    for workload in &args.workloads {
        for peer in peers {
            let mut load = load(args, workload, threads, peer.addr);
            load.time_s = WARM_UP_S;
            visit(peer, &load, dir, cancel)?;
        }
    }
    Ok(())
}

/// Another peer starts in each round: who comes after whom shall not matter.
fn visiting_order(peers: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..peers).map(move |i| (i + round) % peers)
}

fn load(args: &Args, workload: &str, threads: u32, server: SocketAddrV4) -> Sysbench {
    Sysbench {
        tables: args.tables,
        table_rows: args.table_rows,
        threads,
        time_s: args.seconds,
        ..Sysbench::new(workload, server)
    }
}

fn visit(peer: &Peer, load: &Sysbench, dir: &Path, cancel: &AtomicBool) -> Result<Sample, BenchError> {
    let cpu_before = peer.cpu_time()?;
    let report = run(load, dir, cancel)?;
    let cpu_after = peer.cpu_time()?;
    let cpu = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
    sample(&report, cpu)
        .ok_or_else(|| BenchError::NoStatements(format!("{} via {}", load.workload, peer.kind)))
}

/// Runs sysbench to its end, or only until somebody presses Ctrl-C.
fn run(load: &Sysbench, dir: &Path, cancel: &AtomicBool) -> Result<SysbenchReport, BenchError> {
    let end = Instant::now() + Duration::from_secs(u64::from(load.time_s));
    // Dropped, and so killed, if the loop is left early.
    let running = load.start(dir, "sysbench")?;
    while Instant::now() < end {
        if cancel.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        thread::sleep(CANCEL_POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(running.wait()?)
}

/// `None` if there was no statement to divide by.
fn sample(report: &SysbenchReport, cpu: Option<Duration>) -> Option<Sample> {
    (report.statements > 0 && report.time_s > 0.0).then(|| Sample {
        statements: report.statements,
        statements_per_s: report.statements_per_s(),
        cpu_us_per_statement: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / report.statements as f64),
        p99_ms: report.latency_p99_ms,
        errors_ignored: report.ignored_errors,
    })
}

fn progress_line(args: &Args, round: usize, load: &Sysbench, kind: Kind, sample: &Sample) -> String {
    let cpu = sample.cpu_us_per_statement.map(|cpu| format!(", {cpu:.1} us CPU")).unwrap_or_default();
    let errors = match sample.errors_ignored {
        0 => String::new(),
        count => format!(", {count} errors repeated"),
    };
    format!(
        "round {}/{} {} {:>3} threads {kind:<7} {:>8.0} statements/s, p99 {:.2} ms{cpu}{errors}",
        round + 1,
        args.rounds,
        load.workload,
        load.threads,
        sample.statements_per_s,
        sample.p99_ms,
    )
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
    fn every_peer_comes_first_in_turn_and_none_is_left_out() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| visiting_order(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }

    #[test]
    fn cpu_time_is_shared_out_among_the_statements() {
        let with_proxy = sample(&report(10_000), Some(Duration::from_millis(150))).unwrap();
        assert_eq!(with_proxy.cpu_us_per_statement, Some(15.0));
        assert_eq!((with_proxy.statements_per_s, with_proxy.errors_ignored), (5_000.0, 1));
        assert_eq!(sample(&report(10_000), None).unwrap().cpu_us_per_statement, None);
        assert_eq!(sample(&report(0), None), None);
    }
}
