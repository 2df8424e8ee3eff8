//! Measures clients that are logged in and do nothing.

use std::time::Duration;

use weir_lab::client::{Client, Login};
use weir_lab::measure::{Goal, Metric, Sample};
use weir_lab::{Error, Usage};

use crate::bench::{Bench, empty_case, login, progress};
use crate::peer::{Kind, Peer};
use crate::report::Case;
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
pub(super) fn memory(bench: &Bench<'_>) -> Result<Vec<Case>, Error> {
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

fn memory_of(bench: &Bench<'_>, peer: &Peer, tls: bool) -> Result<Sample, Error> {
    let Some(usage) = peer.usage() else { return Ok(Sample::default()) };
    let login = login(peer.addr).tls(tls.then(|| bench.certificates.client(*peer.addr.ip())));
    drop(log_in(bench, &login, WARM_UP_CLIENTS)?);
    bench.stop.sleep(SETTLE)?;
    let before = usage.rss_kib()?;
    let crowd = log_in(bench, &login, bench.scale.clients)?;
    bench.stop.sleep(SETTLE)?;
    let after = usage.rss_kib()?;
    drop(crowd);
    let growth_kib = after.saturating_sub(before) as f64;
    Ok(Sample::default().with(Metric::KibPerClient, growth_kib / f64::from(bench.scale.clients)))
}

/// CPU time of a proxy whose clients are idle, less that of the same proxy without clients.
pub(super) fn cpu(bench: &Bench<'_>) -> Result<Vec<Case>, Error> {
    let clients = bench.scale.idle_clients;
    let peers = bench.peers(Layout::OneNode, clients, &KINDS)?;
    let name = format!("{clients} clients");
    let mut case = empty_case(Row::IdleCpu, &name, Row::IdleCpu.goals(clients), &peers);
    bench.rounds(&mut case, &peers, 0, |peer| {
        let Some(usage) = peer.usage() else { return Ok(Sample::default()) };
        let alone = cpu_ms_per_s(bench, usage)?;
        let crowd = log_in(bench, &login(peer.addr), clients)?;
        bench.stop.sleep(SETTLE)?;
        let with_clients = cpu_ms_per_s(bench, usage)?;
        drop(crowd);
        Ok(Sample::default().with(Metric::IdleCpuMsPerS, (with_clients - alone).max(0.0)))
    })?;
    Ok(vec![case])
}

fn cpu_ms_per_s(bench: &Bench<'_>, usage: Usage) -> Result<f64, Error> {
    let before = usage.run_time()?;
    bench.stop.sleep(Duration::from_secs(u64::from(bench.scale.idle_seconds)))?;
    let used = usage.run_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() * 1000.0 / f64::from(bench.scale.idle_seconds))
}

/// Logs clients in one after the other; each runs a statement.
pub(super) fn log_in(bench: &Bench<'_>, login: &Login, clients: u32) -> Result<Vec<Client>, Error> {
    if clients >= 1000 {
        progress(&format!("logging in {clients} clients at {}", login.address));
    }
    let mut crowd = Vec::with_capacity(clients as usize);
    for i in 0..clients {
        if crowd.len() % CANCEL_EVERY == 0 {
            bench.stop.check()?;
        }
        let doing = || Error::client(format!("client {i} at {}", login.address));
        let mut client = login.connect().map_err(doing())?;
        client.query("SELECT c FROM sbtest1 WHERE id=1").map_err(doing())?;
        crowd.push(client);
    }
    Ok(crowd)
}
