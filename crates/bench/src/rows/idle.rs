//! Rows of clients that are logged in and do nothing.

use std::fs;
use std::time::Duration;

use weir_testkit::Process;

use crate::bench::{Bench, empty_case, progress};
use crate::client::{Client, Login};
use crate::error::BenchError;
use crate::metric::{Goal, Metric, Sample};
use crate::peer::{Kind, Peer};
use crate::results::Case;
use crate::row::{Layout, Row};

/// HAProxy would need as many server connections as clients, which the servers don't take.
const KINDS: [Kind; 3] = [Kind::ProxySql, Kind::Weir, Kind::WeirEpoll];
/// Clients that come and go before memory is looked at first, so that what every proxy loads once is there.
const WARM_UP_CLIENTS: u32 = 20;
/// Until a proxy has done what it does after the last login, or the last goodbye.
const SETTLE: Duration = Duration::from_millis(500);
/// Between two looks for a Ctrl-C while clients log in.
const CANCEL_EVERY: usize = 64;
const PLAIN_KIB_MAX: f64 = 4.0;
const TLS_KIB_MAX: f64 = 24.0;

/// Growth of a fresh proxy's resident memory over the number of clients; each has run one statement.
pub(super) fn memory(bench: &Bench<'_>) -> Result<Vec<Case>, BenchError> {
    let mut cases = Vec::new();
    let clients = bench.scale.clients;
    for (how, tls, bound) in [("plain", false, PLAIN_KIB_MAX), ("TLS", true, TLS_KIB_MAX)] {
        // Fresh ones: memory that other clients have left behind would be taken first.
        let peers = bench.peers(Layout::OneNode, clients, &KINDS)?;
        let goals = vec![Goal::at_most(Metric::KibPerClient, bound)];
        let mut case = empty_case(Row::IdleMemory, &format!("{clients} clients, {how}"), goals, &peers);
        bench.rounds(&mut case, &peers, 0, |peer| memory_of(bench, peer, tls))?;
        cases.push(case);
    }
    Ok(cases)
}

fn memory_of(bench: &Bench<'_>, peer: &Peer, tls: bool) -> Result<Sample, BenchError> {
    let Some(process) = peer.process() else { return Ok(Sample::default()) };
    let mut login = Login::new(peer.addr);
    login.tls = tls.then(|| bench.certificates.client());
    drop(log_in(bench, &login, WARM_UP_CLIENTS)?);
    bench.sleep(SETTLE)?;
    let before = process.rss_kib()?;
    let crowd = log_in(bench, &login, bench.scale.clients)?;
    bench.sleep(SETTLE)?;
    let after = process.rss_kib()?;
    drop(crowd);
    let growth_kib = after.saturating_sub(before) as f64;
    Ok(Sample::default().with(Metric::KibPerClient, growth_kib / f64::from(bench.scale.clients)))
}

/// CPU time of a proxy whose clients are idle, less that of the same proxy without clients.
pub(super) fn cpu(bench: &Bench<'_>) -> Result<Vec<Case>, BenchError> {
    let clients = bench.scale.idle_clients;
    let peers = bench.peers(Layout::OneNode, clients, &KINDS)?;
    let name = format!("{clients} clients");
    let mut case = empty_case(Row::IdleCpu, &name, Row::IdleCpu.goals(clients), &peers);
    bench.rounds(&mut case, &peers, 0, |peer| {
        let Some(process) = peer.process() else { return Ok(Sample::default()) };
        let alone = cpu_ms_per_s(bench, process)?;
        let crowd = log_in(bench, &Login::new(peer.addr), clients)?;
        bench.sleep(SETTLE)?;
        let with_clients = cpu_ms_per_s(bench, process)?;
        drop(crowd);
        Ok(Sample::default().with(Metric::IdleCpuMsPerS, (with_clients - alone).max(0.0)))
    })?;
    Ok(vec![case])
}

fn cpu_ms_per_s(bench: &Bench<'_>, process: &Process) -> Result<f64, BenchError> {
    let before = cpu_time(process)?;
    bench.sleep(Duration::from_secs(u64::from(bench.scale.idle_seconds)))?;
    let used = cpu_time(process)?.saturating_sub(before);
    Ok(used.as_secs_f64() * 1000.0 / f64::from(bench.scale.idle_seconds))
}

/// CPU time used so far by the threads that run now, in the kernel's nanoseconds (`/proc/PID/task/*/schedstat`, first
/// field): ticks of 10 ms are too coarse for a proxy that does nothing.
fn cpu_time(process: &Process) -> Result<Duration, BenchError> {
    let dir = format!("/proc/{}/task", process.pid());
    let doing = || BenchError::io(format!("read {dir}"));
    let mut sum_ns = 0;
    for task in fs::read_dir(&dir).map_err(doing())? {
        let path = task.map_err(doing())?.path().join("schedstat");
        // A thread that has ended meanwhile has no file.
        let text = fs::read_to_string(path).unwrap_or_default();
        sum_ns += run_time_ns(&text).unwrap_or_default();
    }
    Ok(Duration::from_nanos(sum_ns))
}

fn run_time_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Logs clients in one after the other; each runs a statement.
pub(super) fn log_in(bench: &Bench<'_>, login: &Login, clients: u32) -> Result<Vec<Client>, BenchError> {
    if clients >= 1000 {
        progress(&format!("logging in {clients} clients at {}", login.address));
    }
    let mut crowd = Vec::with_capacity(clients as usize);
    for i in 0..clients {
        if crowd.len() % CANCEL_EVERY == 0 {
            bench.check_cancel()?;
        }
        let doing = || BenchError::client(format!("client {i} at {}", login.address));
        let mut client = login.connect().map_err(doing())?;
        client.query("SELECT c FROM sbtest1 WHERE id=1").map_err(doing())?;
        crowd.push(client);
    }
    Ok(crowd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_is_the_first_field() {
        assert_eq!(run_time_ns("1234567 89 10\n"), Some(1_234_567));
        assert_eq!(run_time_ns(""), None);
    }
}
